-- Why: the first shape of the control plane's truth: hosts, environments, runs, their events and outputs, uploads,
-- idempotency keys, leases. Capacity in use is never a counter: it is the sum over environments that hold a reservation.

create table cluster (
  singleton boolean primary key default true check (singleton),
  -- Ownership tag of every VM that this control plane starts.
  tag text not null,
  -- Signs output download URLs when the object store cannot presign.
  url_signing_key bytea not null,
  created_at timestamptz not null default now()
);

create table hosts (
  id text primary key,
  url text not null,
  token text,
  state text not null default 'active' check (state in ('active', 'cordoned', 'draining')),
  region text,
  backend text not null,
  arch text not null default 'amd64',
  labels jsonb not null default '{}',
  cpus int not null check (cpus > 0),
  ram_mb int not null check (ram_mb > 0),
  storage_gb int not null check (storage_gb > 0),
  vm_count int not null check (vm_count > 0),
  -- What it can boot, as it last reported: [{name, digest, size_bytes, description?}].
  images jsonb not null default '[]',
  last_seen timestamptz not null default now(),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

create table environments (
  uid uuid primary key default gen_random_uuid(),
  -- Public id: prefix + task_id. Unique among those that are not gone.
  id text not null,
  tenant_id text not null default 'default',
  task_id text not null,
  -- The VM's name on its host; never reused.
  vm_id text not null unique,
  host_id text references hosts (id) on delete set null,
  state text not null check (state in ('provisioning', 'running', 'draining', 'pausing', 'paused', 'resuming', 'destroying', 'destroyed', 'failed')),
  version bigint not null default 1,
  image text not null,
  spec jsonb not null,
  -- What is reserved on the host while state is not gone.
  cpus int not null check (cpus >= 0),
  ram_mb int not null check (ram_mb >= 0),
  storage_gb int not null check (storage_gb >= 0),
  env jsonb not null default '{}',
  url text not null default '',
  error text,
  run_id text,
  last_activity_at timestamptz not null default now(),
  expires_at timestamptz,
  lease_owner text,
  lease_until timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  gone_at timestamptz
);
create unique index environments_live_id on environments (id) where state not in ('destroyed', 'failed');
create index environments_by_host on environments (host_id) where state not in ('destroyed', 'failed');
create index environments_by_state on environments (state, id);
create index environments_gone on environments (gone_at) where gone_at is not null;

create table runs (
  id text primary key,
  tenant_id text not null default 'default',
  state text not null check (state in ('queued', 'starting', 'running', 'saving', 'succeeded', 'failed', 'timed_out', 'cancelled')),
  version bigint not null default 1,
  image text not null,
  cpus int not null,
  ram_mb int not null,
  storage_gb int not null,
  timeout_ms bigint not null,
  labels jsonb not null default '{}',
  -- The normalised request: argv, env, cwd, files and stdin as object keys (never inline bytes), output globs, encoding.
  request jsonb not null,
  environment_uid uuid references environments (uid) on delete set null,
  cancel_requested_at timestamptz,
  queue_deadline timestamptz not null,
  -- Result: present from `saving` on. `outcome` is the state that follows it.
  outcome text check (outcome in ('succeeded', 'failed', 'timed_out', 'cancelled')),
  exit_code int,
  signal text,
  oom_killed boolean,
  stdout bytea,
  stderr bytea,
  stdout_bytes bigint,
  stderr_bytes bigint,
  truncated boolean,
  -- The frame log holds less than the command wrote.
  log_truncated boolean,
  skipped_outputs jsonb not null default '[]',
  frames_object_key text,
  error_code text,
  error_message text,
  -- Milliseconds of the phases that ended; `state_since` is where the current one began.
  timings jsonb not null default '{}',
  state_since timestamptz not null default clock_timestamp(),
  lease_owner text,
  lease_until timestamptz,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  finished_at timestamptz,
  updated_at timestamptz not null default now(),
  -- After this its outputs and row may be collected.
  expires_at timestamptz
);
create index runs_open on runs (created_at, id) where state in ('queued', 'starting', 'running', 'saving');
-- Ids begin with the time of creation: newest first is by id.
create index runs_newest_first on runs (tenant_id, id desc);
create index runs_by_label on runs using gin (labels jsonb_path_ops);
create index runs_to_collect on runs (expires_at) where expires_at is not null;

create table run_outputs (
  run_id text not null references runs (id) on delete cascade,
  position int not null,
  path text not null,
  kind text not null check (kind in ('file', 'log')),
  size_bytes bigint not null,
  sha256 text not null,
  content_type text not null,
  object_key text not null,
  primary key (run_id, position),
  unique (run_id, path)
);

-- One row per transition, written in the transaction that makes it. `seq` orders the events of one subject.
create table events (
  id bigint generated always as identity primary key,
  subject_kind text not null check (subject_kind in ('environment', 'run', 'host')),
  subject_id text not null,
  kind text not null,
  data jsonb not null,
  at timestamptz not null default now()
);
create index events_by_subject on events (subject_kind, subject_id, id);
create index events_by_age on events (at);

create table files (
  id text primary key,
  tenant_id text not null default 'default',
  object_key text not null,
  size_bytes bigint not null,
  sha256 text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index files_to_collect on files (expires_at);

create table idempotency_keys (
  tenant_id text not null,
  route text not null,
  key text not null,
  body_sha256 text not null,
  resource_id text not null,
  -- What the first request was answered, so that a repeated one is answered the same.
  response jsonb,
  created_at timestamptz not null default now(),
  primary key (tenant_id, route, key)
);
create index idempotency_keys_to_collect on idempotency_keys (created_at);

-- Named leases with fencing: who reconciles, who collects.
create table leases (
  name text primary key,
  owner text not null,
  fence bigint not null,
  until timestamptz not null
);
