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
  Exec,
  ExecExit,
  ExecRequest,
  ExecResult,
  ExecStdin,
  FileInfo,
  FileOperation,
  FileResponse,
  FileWritten,
  ForkEnvironment,
  Forks,
  Host,
  Image,
  Language,
  ListProcesses,
  ProcessInfo,
  RegisterHost,
  Run,
  RunErrorCode,
  RunFile,
  RunOutput,
  RunState,
  RunTimings,
  SignalName,
  SkippedOutput,
  Snapshot,
  SnapshotState,
  TarIn,
  TerminalSize,
  TextEdit,
  Ticket,
  TicketRequest,
  UploadedFile,
  WatchEvent,
} from '@fuse/contract';
export { isTerminalRunState } from '@fuse/contract';
export { FuseClient, type FuseClientOptions, type ServerVersion } from './client.ts';
export {
  type Environments,
  isTerminalState,
  type ListEnvironmentsOptions,
  type Tickets,
} from './environments.ts';
export {
  CutStreamError,
  type ErrorCode,
  FuseApiError,
  FuseConnectionError,
  FuseError,
  FuseExecLostError,
  FuseLogGapError,
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
export type { ExecLogItem, FollowOptions, LogOptions, LogPosition } from './exec-log.ts';
export type { Execs, KillOptions, Processes, WriteStdinOptions } from './execs.ts';
export type { ByteRange, OpenedFile } from './file-reading.ts';
export type { FileContent, Files } from './files.ts';
export type { Hosts, ListHostsOptions } from './hosts.ts';
export type { KeyedOptions } from './once.ts';
export type { ConnectPortOptions, PortConnection } from './port-connection.ts';
export type {
  ListOptions,
  Ownership,
  ReadOptions,
  RemoteFiles,
  SearchOptions,
  WriteOptions,
} from './remote-files.ts';
export type {
  ProcessOptions,
  ReattachOptions,
  RemoteProcess,
  SpawnCallOptions,
  SpawnOptions,
} from './remote-process.ts';
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
export type { AttachOptions, Terminal, TerminalExit } from './terminal.ts';
export type { Fetch } from './transport.ts';
export { VERSION } from './version.ts';
export type { WatchOptions } from './watch-files.ts';
export { globalWebSockets, type MessageSocket, type WebSockets } from './web-sockets.ts';
