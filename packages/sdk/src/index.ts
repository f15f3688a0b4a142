/** The Fuse API for TypeScript. Runs wherever there is a `fetch`; what needs Node is in `@fuse/sdk/node`. */
export type {
  ApiKey,
  ApiKey as APIKey,
  AuditEntry,
  ComputerAction,
  ComputerResult,
  ComputerStatus,
  CreateApiKey,
  CreateEnvironment,
  CreateRun,
  CreateSnapshot,
  CreateTenant,
  Environment,
  Environment as EnvironmentInfo,
  EnvironmentEvent,
  EnvironmentEvent as Event,
  EnvironmentNetwork,
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
  FleetEvent,
  FleetReset,
  ForkEnvironment,
  Forks,
  GivenNetworkPolicy,
  Health,
  Host,
  Host as HostInfo,
  Image,
  JoinToken,
  JoinTokenRequest,
  Language,
  ListProcesses,
  MintedApiKey,
  NetworkConnection,
  NetworkPolicy,
  NetworkRule,
  PlacementReport,
  ProcessInfo,
  QuotaName,
  Quotas,
  RegisterHost,
  Run,
  RunErrorCode,
  RunFile,
  RunOutput,
  RunState,
  RunTimings,
  Scope,
  SignalName,
  SkippedOutput,
  Snapshot,
  SnapshotState,
  TarIn,
  Tenant,
  TerminalSize,
  TextEdit,
  Ticket,
  TicketRequest,
  UpdateEnvironment,
  UpdateTenant,
  UploadedFile,
  Usage,
  UsageHistory,
  WatchEvent,
} from '@fuse/contract';
export { isTerminalRunState } from '@fuse/contract';
export type { ApiKeys } from './api-keys.ts';
export type { Audit, AuditFilter, ListAuditOptions } from './audit.ts';
export { FuseClient, type FuseClientOptions, type ServerVersion } from './client.ts';
export type { ComputerToolContent, ComputerToolResult } from './computer.ts';
export {
  type Environments,
  type HealthState,
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
export type { FleetStreamEvent } from './fleet-events.ts';
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
export type { ListTenantsOptions, Tenants } from './tenants.ts';
export type { AttachOptions, Terminal, TerminalExit } from './terminal.ts';
export type { Fetch } from './transport.ts';
export type { UsageHistoryOptions, UsageReports } from './usage.ts';
export { VERSION } from './version.ts';
export type { WatchOptions } from './watch-files.ts';
export { type ByteConnection, globalWebSockets, type MessageSocket, type WebSockets } from './web-sockets.ts';
