/** The Fuse API for TypeScript. Runs wherever there is a `fetch`; what needs Node is in `@fuse/sdk/node`. */
export type {
  CreateEnvironment,
  CreateRun,
  CreateSnapshot,
  Environment,
  Environment as EnvironmentInfo,
  EnvironmentEvent,
  EnvironmentSpec,
  EnvironmentState as State,
  ExecRequest,
  ExecResult,
  ForkEnvironment,
  Forks,
  Host,
  Image,
  Language,
  RegisterHost,
  Run,
  RunErrorCode,
  RunFile,
  RunOutput,
  RunState,
  RunTimings,
  SkippedOutput,
  Snapshot,
  SnapshotState,
  UploadedFile,
} from '@fuse/contract';
export { isTerminalRunState } from '@fuse/contract';
export { FuseClient, type FuseClientOptions, type ServerVersion } from './client.ts';
export {
  type Environments,
  isTerminalState,
  type ListEnvironmentsOptions,
} from './environments.ts';
export {
  CutStreamError,
  type ErrorCode,
  FuseApiError,
  FuseConnectionError,
  FuseError,
  FuseTimeoutError,
  IntegrityError,
  isConflict,
  isForbidden,
  isInternal,
  isInvalidArgument,
  isNotFound,
  isQuotaExceeded,
  isUnauthorized,
  isUnavailable,
  isVmLost,
} from './errors.ts';
export type { FileContent, Files } from './files.ts';
export type { Hosts, ListHostsOptions } from './hosts.ts';
export type { KeyedOptions } from './once.ts';
export { asText, bytesFromBase64, type RunStreamEvent, type RunTextEvent } from './run-events.ts';
export type { CallOptions, RunOutputs } from './run-outputs.ts';
export type { RunResult } from './run-result.ts';
export type { CreateRunOptions, EventsOptions, ListRunsOptions, RunOptions, Runs } from './runs.ts';
export type {
  DeletedSnapshot,
  DeleteSnapshotOptions,
  ListSnapshotsOptions,
  RestoreSnapshotOptions,
  Snapshots,
} from './snapshots.ts';
export type { Fetch } from './transport.ts';
export { VERSION } from './version.ts';
