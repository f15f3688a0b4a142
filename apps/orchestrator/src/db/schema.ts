/**
 * The tables as Kysely sees them (migrations/ is the source). On both engines bigint and numeric are read as numbers,
 * timestamptz as Date, bytea as Uint8Array, jsonb parsed. Write jsonb with `jsonb(value)`: the engines differ on bare objects and arrays.
 */
import type {
  actorKinds,
  EnvironmentSpec,
  EnvironmentState,
  ExportState,
  Health,
  Healthcheck,
  NetworkPolicy,
  PlacementReport,
  Quotas,
  RunErrorCode,
  RunState,
  Scope,
  SnapshotState,
  TicketRequest,
} from '@fuse/contract';
import type { HostImage } from '@fuse/host-protocol';
import type { ColumnType, Generated, RawBuilder, Selectable } from 'kysely';
import type { NetworkTotals } from '../network/network-totals.ts';
import type { GpuCapacity, GpuHold } from '../scheduling/gpus.ts';
import type { SealedJson } from '../secrets/sealed-json.ts';

type WithDefault<T> = ColumnType<T, T | undefined, T>;
/** Set by the database's clock only. */
type Instant = ColumnType<Date, RawBuilder<Date> | undefined, RawBuilder<Date>>;
type NullableInstant = ColumnType<
  Date | null,
  RawBuilder<Date> | Date | null | undefined,
  RawBuilder<Date> | Date | null
>;
type Json<T> = ColumnType<T, RawBuilder<T> | undefined, RawBuilder<T>>;

export interface ClusterTable {
  singleton: Generated<boolean>;
  tag: string;
  /** In clear: of a cluster that was made before it was sealed. */
  url_signing_key: Uint8Array | null;
  url_signing_key_sealed: string | null;
  stored_metered_at: Instant;
  created_at: Instant;
}

export interface HostsTable {
  id: string;
  url: string;
  /** Of a host that was registered before tokens were sealed. */
  token: string | null;
  state: WithDefault<'active' | 'cordoned' | 'draining'>;
  region: string | null;
  backend: string;
  arch: WithDefault<string>;
  labels: Json<Record<string, string>>;
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  vm_count: number;
  images: Json<HostImage[]>;
  token_sealed: string | null;
  free_storage_gb: number | null;
  declared: WithDefault<string[]>;
  gpu_capacity: Json<GpuCapacity>;
  templates: Json<HostTemplate[]>;
  unreachable_at: NullableInstant;
  lost_at: NullableInstant;
  no_network: string | null;
  last_seen: Instant;
  created_at: Instant;
  updated_at: Instant;
}

/** A shape that a host starts from a snapshot that was made before. */
export interface HostTemplate {
  image: string;
  cpus: number;
  ram_mb: number;
  storage_gb: number;
}

export interface EnvironmentsTable {
  uid: Generated<string>;
  id: string;
  tenant_id: WithDefault<string>;
  task_id: string;
  vm_id: string;
  host_id: string | null;
  state: EnvironmentState;
  version: Generated<number>;
  image: string;
  spec: Json<EnvironmentSpec>;
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  env: Json<SealedJson<Record<string, string>>>;
  url: WithDefault<string>;
  error: string | null;
  run_id: string | null;
  last_activity_at: Instant;
  expires_at: NullableInstant;
  lease_owner: string | null;
  lease_until: NullableInstant;
  created_at: Instant;
  updated_at: Instant;
  gone_at: NullableInstant;
  seed_snapshot_id: string | null;
  idle_action: WithDefault<'destroy' | 'pause'>;
  auto_resume: WithDefault<boolean>;
  checkpoint_interval_seconds: WithDefault<number>;
  checkpoint_keep: WithDefault<number>;
  checkpointed_at: NullableInstant;
  paused_at: NullableInstant;
  fallback: 'disk' | null;
  restore_id: string | null;
  restore_snapshot_id: string | null;
  /** What is still to be done before it runs. */
  startup: Json<Startup> | null;
  healthcheck: Json<Healthcheck> | null;
  health: Json<Health> | null;
  expose: Json<Exposed[]> | null;
  archive_key: string | null;
  archive_until: NullableInstant;
  labels: Json<Record<string, string>>;
  queue_deadline: NullableInstant;
  placement: Json<PlacementReport> | null;
  token_hash: Uint8Array | null;
  token_sealed: string | null;
  desktop: Json<{ width: number; height: number }> | null;
  gateway_url: string | null;
  key_id: string | null;
  metered_at: NullableInstant;
  network: Json<NetworkPolicy>;
  network_card: boolean | null;
  network_totals: Json<NetworkTotals> | null;
  gpus: Json<GpuHold> | null;
}

export interface Startup {
  content: SealedJson<StartupContent>;
  timeout_seconds: number;
  /** A caller waits for the create: nobody goes on with a start that is abandoned. */
  waited: boolean;
}

export interface StartupContent {
  /** Path to base64. */
  files?: Record<string, string>;
  script?: string;
  /** Its JSON, as it came. */
  manifest?: string;
  secrets?: Record<string, string>;
}

export interface Exposed {
  port: number;
  as?: string;
}

export interface TicketsTable {
  hash: Buffer;
  tenant_id: string;
  environment_uid: string;
  purpose: Json<TicketRequest>;
  expires_at: Instant;
  proof: string | null;
}

export interface TenantsTable {
  id: string;
  label: string | null;
  quotas: Json<Quotas>;
  disabled_at: NullableInstant;
  queue_served_at: NullableInstant;
  network_max: Json<NetworkPolicy> | null;
  network_default: Json<NetworkPolicy> | null;
  created_at: Instant;
  updated_at: Instant;
}

export interface ApiKeysTable {
  id: string;
  tenant_id: string;
  hash: Uint8Array;
  label: string | null;
  scopes: Scope[] | null;
  created_at: Instant;
  expires_at: NullableInstant;
  last_used_at: NullableInstant;
  revoked_at: NullableInstant;
}

export interface SessionsTable {
  hash: Uint8Array;
  created_at: Instant;
  expires_at: ColumnType<Date, RawBuilder<Date>, RawBuilder<Date>>;
}

export interface AuditTable {
  id: Generated<number>;
  at: Instant;
  tenant_id: string | null;
  actor_kind: (typeof actorKinds)[number];
  actor: string | null;
  method: string;
  route: string;
  target: string | null;
  status: number;
  code: string | null;
  request_id: string;
  remote: string | null;
}

export interface UsageTable {
  tenant_id: string;
  hour: ColumnType<Date, RawBuilder<Date>, never>;
  vcpu_seconds: WithDefault<number>;
  gib_seconds: WithDefault<number>;
  stored_byte_seconds: WithDefault<number>;
  egress_bytes: WithDefault<number>;
}

export interface JoinTokensTable {
  hash: Uint8Array;
  region: string | null;
  labels: Json<Record<string, string>>;
  uses: number;
  created_at: Instant;
  expires_at: ColumnType<Date, RawBuilder<Date>, RawBuilder<Date>>;
}

export interface RunsTable {
  id: string;
  tenant_id: WithDefault<string>;
  state: RunState;
  version: Generated<number>;
  image: string;
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  timeout_ms: number;
  labels: Json<Record<string, string>>;
  network: Json<NetworkPolicy>;
  /** Typed by runs/: its own normalised request. */
  request: Json<unknown>;
  environment_uid: string | null;
  cancel_requested_at: NullableInstant;
  queue_deadline: ColumnType<Date, RawBuilder<Date>, RawBuilder<Date>>;
  /** The state that follows `saving`. */
  outcome: 'succeeded' | 'failed' | 'timed_out' | 'cancelled' | null;
  exit_code: number | null;
  signal: string | null;
  oom_killed: boolean | null;
  stdout: Uint8Array | null;
  stderr: Uint8Array | null;
  stdout_bytes: number | null;
  stderr_bytes: number | null;
  truncated: boolean | null;
  log_truncated: boolean | null;
  skipped_outputs: Json<{ path: string; reason: string }[]>;
  frames_object_key: string | null;
  error_code: RunErrorCode | null;
  error_message: string | null;
  timings: Json<Record<string, number>>;
  state_since: Instant;
  lease_owner: string | null;
  lease_until: NullableInstant;
  created_at: Instant;
  started_at: NullableInstant;
  finished_at: NullableInstant;
  updated_at: Instant;
  expires_at: NullableInstant;
}

export interface RunOutputsTable {
  run_id: string;
  position: number;
  path: string;
  kind: 'file' | 'log';
  size_bytes: number;
  sha256: string;
  content_type: string;
  object_key: string;
}

export interface EventsTable {
  id: Generated<number>;
  subject_kind: 'environment' | 'run' | 'host' | 'snapshot' | 'tenant';
  subject_id: string;
  kind: string;
  data: Json<Record<string, unknown>>;
  at: Instant;
  /** Null: nobody's in particular. */
  tenant_id: string | null;
  /** The transaction that wrote it, a 64-bit number as text. */
  xid: Generated<string>;
}

export interface FilesTable {
  id: string;
  tenant_id: WithDefault<string>;
  object_key: string;
  size_bytes: number;
  sha256: string;
  created_at: Instant;
  expires_at: ColumnType<Date, RawBuilder<Date>, RawBuilder<Date>>;
}

export interface IdempotencyKeysTable {
  tenant_id: string;
  route: string;
  key: string;
  body_sha256: string;
  resource_id: string;
  response: Json<unknown>;
  created_at: Instant;
}

export interface LeasesTable {
  name: string;
  owner: string;
  fence: number;
  until: ColumnType<Date, RawBuilder<Date>, RawBuilder<Date>>;
}

export interface SnapshotsTable {
  id: string;
  tenant_id: WithDefault<string>;
  environment_uid: string | null;
  vm_id: string;
  task_id: string;
  host_vm_id: string;
  host_id: string | null;
  parent_snapshot_id: string | null;
  state: SnapshotState;
  version: Generated<number>;
  mode: WithDefault<string>;
  is_checkpoint: WithDefault<boolean>;
  comment: string | null;
  name: string | null;
  metadata: Json<Record<string, string>>;
  layer_key: string | null;
  arch: WithDefault<string>;
  include_memory: boolean;
  image: string;
  spec: Json<EnvironmentSpec>;
  env: Json<SealedJson<Record<string, string>>>;
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  digest: string | null;
  size_bytes: number | null;
  stored_bytes: number | null;
  pause_ms: number | null;
  retention_until: NullableInstant;
  last_error: string | null;
  export_ref: string | null;
  export_status: string | null;
  export_state: WithDefault<ExportState>;
  export_error: string | null;
  export_requested_at: NullableInstant;
  export_tries: WithDefault<number>;
  manifest_key: string | null;
  exported_bytes: number | null;
  lease_owner: string | null;
  lease_until: NullableInstant;
  created_at: Instant;
  updated_at: Instant;
  key_id: string | null;
  network: Json<NetworkPolicy>;
}

export interface ChunksTable {
  sha256: string;
  stored_bytes: number | null;
  is_stored: WithDefault<boolean>;
  created_at: Instant;
}

export interface SnapshotChunksTable {
  snapshot_id: string;
  sha256: string;
}

export interface Database {
  cluster: ClusterTable;
  hosts: HostsTable;
  environments: EnvironmentsTable;
  runs: RunsTable;
  run_outputs: RunOutputsTable;
  events: EventsTable;
  files: FilesTable;
  idempotency_keys: IdempotencyKeysTable;
  leases: LeasesTable;
  snapshots: SnapshotsTable;
  chunks: ChunksTable;
  snapshot_chunks: SnapshotChunksTable;
  tickets: TicketsTable;
  tenants: TenantsTable;
  api_keys: ApiKeysTable;
  sessions: SessionsTable;
  audit: AuditTable;
  usage: UsageTable;
  join_tokens: JoinTokensTable;
}

export type HostRow = Selectable<HostsTable>;
export type EnvironmentRow = Selectable<EnvironmentsTable>;
export type RunRow = Selectable<RunsTable>;
export type SnapshotRow = Selectable<SnapshotsTable>;
export type EventRow = Selectable<EventsTable>;
