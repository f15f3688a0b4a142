-- Why: snapshots, forks, restore in place, pause and resume, checkpoints.

alter table environments
  add column seed_snapshot_id text,
  add column idle_action text not null default 'destroy' check (idle_action in ('destroy', 'pause')),
  add column auto_resume boolean not null default false,
  add column checkpoint_interval_seconds int not null default 0 check (checkpoint_interval_seconds >= 0),
  add column checkpoint_keep int not null default 3 check (checkpoint_keep > 0),
  -- When the last checkpoint was begun, whatever became of it.
  add column checkpointed_at timestamptz,
  add column paused_at timestamptz,
  -- Of a start from a snapshot whose memory does not fit its host.
  add column fallback text check (fallback in ('disk')),
  -- A restore in place, while `resuming`: what the host is asked for, once.
  add column restore_id text,
  add column restore_snapshot_id text;

alter table events
  drop constraint events_subject_kind_check,
  add constraint events_subject_kind_check check (subject_kind in ('environment', 'run', 'host', 'snapshot'));

create table snapshots (
  id text primary key,
  tenant_id text not null default 'default',
  -- Null once that environment's row is collected; its names stay.
  environment_uid uuid references environments (uid) on delete set null,
  vm_id text not null,
  task_id text not null,
  -- The VM on its host, as hosts know it.
  host_vm_id text not null,
  host_id text references hosts (id) on delete set null,
  parent_snapshot_id text,
  state text not null check (state in ('creating', 'ready', 'restoring', 'deleting', 'error')),
  version bigint not null default 1,
  mode text not null default 'manual',
  -- A checkpoint that Fuse took by itself: counted by checkpoint_keep.
  is_checkpoint boolean not null default false,
  comment text,
  name text,
  metadata jsonb not null default '{}',
  layer_key text,
  arch text not null default 'amd64',
  include_memory boolean not null,
  -- What an environment that starts from it is: image, shape, variables.
  image text not null,
  spec jsonb not null,
  env jsonb not null default '{}',
  cpus int not null,
  ram_mb int not null,
  storage_gb int not null,
  digest text,
  size_bytes bigint,
  stored_bytes bigint,
  pause_ms double precision,
  retention_until timestamptz,
  last_error text,
  export_ref text,
  export_status text,
  export_state text not null default 'none' check (export_state in ('none', 'pending', 'running', 'done', 'error')),
  export_error text,
  export_requested_at timestamptz,
  -- Tries that failed since then; after one, lease_until is when the next may begin.
  export_tries int not null default 0,
  -- In the object store, once the export is done.
  manifest_key text,
  exported_bytes bigint,
  lease_owner text,
  lease_until timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index snapshots_by_tenant on snapshots (tenant_id, id);
create index snapshots_by_vm on snapshots (vm_id, created_at);
create index snapshots_by_environment on snapshots (environment_uid, created_at);
create index snapshots_by_parent on snapshots (parent_snapshot_id) where parent_snapshot_id is not null;
create index snapshots_by_layer on snapshots (tenant_id, layer_key, arch) where layer_key is not null;
create index snapshots_to_collect on snapshots (retention_until) where retention_until is not null;
create index snapshots_open on snapshots (state) where state in ('creating', 'restoring', 'deleting');
create index snapshots_to_export on snapshots (export_state) where export_state in ('pending', 'running');

-- Content-addressed pieces of exported snapshots in the object store. A chunk is referred to before it is uploaded, and deleted from the store in the
-- transaction that removes its row while nothing refers to it: an export that wants it again waits for that row's lock.
create table chunks (
  sha256 text primary key,
  stored_bytes bigint,
  -- Whether its object is there.
  is_stored boolean not null default false,
  created_at timestamptz not null default now()
);

create table snapshot_chunks (
  snapshot_id text not null references snapshots (id) on delete cascade,
  sha256 text not null references chunks (sha256),
  primary key (snapshot_id, sha256)
);
create index snapshot_chunks_by_chunk on snapshot_chunks (sha256);
