-- Why: many customers on many hosts: tenants with API keys, quotas and usage; the audit log; browser sessions; hosts that join, are lost and say what room they
-- have; environments that wait for room, hold credentials and secrets; an order over the events of all subjects.

create table tenants (
  id text primary key,
  label text,
  -- {environments?, cpus?, …}: absent is no limit.
  quotas jsonb not null default '{}',
  disabled_at timestamptz,
  -- When one of its environments or runs last got room that it had waited for: tenants take turns.
  queue_served_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
insert into tenants (id) values ('default');

create table api_keys (
  -- ak_ and 16 hex digits.
  id text primary key,
  tenant_id text not null references tenants (id) on delete cascade,
  -- sha256 of the key.
  hash bytea not null unique,
  label text,
  -- Null: a plain key, which has no scopes.
  scopes text[],
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  -- Written once a minute at most.
  last_used_at timestamptz,
  revoked_at timestamptz
);
create index api_keys_newest_first on api_keys (tenant_id, created_at desc, id desc);

-- Browsers that are logged in as the master. The cookie holds a secret of which this is the HMAC-SHA256 under the master token: with that it ends too.
create table sessions (
  hash bytea primary key,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index sessions_expired on sessions (expires_at);

create table audit (
  id bigint generated always as identity primary key,
  at timestamptz not null default now(),
  tenant_id text,
  actor_kind text not null,
  actor text,
  method text not null,
  route text not null,
  target text,
  status int not null,
  code text,
  request_id text not null,
  remote text
);
create index audit_newest_first on audit (id desc);
create index audit_by_tenant on audit (tenant_id, id desc);
create index audit_by_age on audit (at);

-- What was used in each hour; rows only grow. Kept when what was counted is pruned.
create table usage (
  tenant_id text not null references tenants (id) on delete cascade,
  hour timestamptz not null,
  vcpu_seconds double precision not null default 0,
  gib_seconds double precision not null default 0,
  stored_byte_seconds double precision not null default 0,
  egress_bytes bigint not null default 0,
  primary key (tenant_id, hour)
);

-- Of what is stored: up to when it is in `usage`.
alter table cluster add column stored_metered_at timestamptz not null default now();
-- How many were made in the last minute.
create index runs_by_tenant_and_age on runs (tenant_id, created_at);

alter table environments
  add column labels jsonb not null default '{}',
  -- Of one that waits for room: it has no host yet and is given up then.
  add column queue_deadline timestamptz,
  -- {at, host_id?, hosts: [{host_id, score?, reason?}]}: why it is where it is.
  add column placement jsonb,
  -- Of the credential that the guest has: its sha256, and itself sealed.
  add column token_hash bytea,
  add column token_sealed text,
  add column desktop jsonb,
  add column gateway_url text,
  -- Of the API key that made it.
  add column key_id text,
  -- Up to when its use is in `usage`.
  add column metered_at timestamptz;
-- Ids are a tenant's own.
drop index environments_live_id;
create unique index environments_live_id on environments (tenant_id, id) where state not in ('destroyed', 'failed');
create index environments_live_newest on environments (tenant_id, created_at);
create unique index environments_token on environments (token_hash) where token_hash is not null;
create index environments_queued on environments (tenant_id, created_at, uid) where queue_deadline is not null;
create index runs_queued on runs (tenant_id, created_at, id) where state = 'queued';
create index environments_queue_ends on environments (queue_deadline) where queue_deadline is not null;
create index runs_queue_ends on runs (queue_deadline) where state = 'queued';
create index environments_by_label on environments using gin (labels jsonb_path_ops);

-- What each environment that has a host reserves there: a row for as long as it does, kept in step by whatever changes its state. Narrow, and touched by
-- nothing else, since every admission sums over all of them.
create table reservations (
  environment_uid uuid primary key references environments (uid) on delete cascade,
  host_id text not null,
  tenant_id text not null,
  cpus int not null,
  ram_mb int not null,
  storage_gb int not null,
  -- Then its disk alone.
  is_paused boolean not null
);
create index reservations_by_tenant on reservations (tenant_id);
insert into reservations
  select uid, host_id, tenant_id, cpus, ram_mb, storage_gb, state = 'paused' from environments
  where host_id is not null and state not in ('destroyed', 'failed');
create function keep_reservation() returns trigger language plpgsql as $$
begin
  if new.host_id is null or new.state in ('destroyed', 'failed') then
    delete from reservations where environment_uid = new.uid;
  else
    insert into reservations
      values (new.uid, new.host_id, new.tenant_id, new.cpus, new.ram_mb, new.storage_gb, new.state = 'paused')
      on conflict (environment_uid) do update set host_id = excluded.host_id, is_paused = excluded.is_paused
      where (reservations.host_id, reservations.is_paused) is distinct from (excluded.host_id, excluded.is_paused);
  end if;
  return null;
end $$;
create trigger keep_reservation after insert or update of state, host_id on environments
  for each row execute function keep_reservation();

alter table hosts
  -- The token sealed, in place of `token`.
  add column token_sealed text,
  add column free_storage_gb int,
  -- Which amounts an operator declared: they stand. The others follow what the host reports.
  add column declared text[] not null default '{cpus,ram_mb,storage_gb,vm_count}',
  -- {gpus?, gpu_kind?, mig_profiles?}, as declared.
  add column gpu_capacity jsonb not null default '{}',
  -- What it can start from at once: [{image, cpus, ram_mb, storage_gb}].
  add column templates jsonb not null default '[]',
  -- Since when it does not answer; null: it does.
  add column unreachable_at timestamptz,
  add column lost_at timestamptz;

-- The key sealed, in place of `url_signing_key`.
alter table cluster add column url_signing_key_sealed text, alter column url_signing_key drop not null;

create table join_tokens (
  hash bytea primary key,
  region text,
  labels jsonb not null default '{}',
  uses int not null check (uses >= 0),
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);

alter table snapshots add column key_id text;
-- The credential that asked for it, with which a ticket dies: `api_key:<id>`, `session:<hash>`, `environment:<hash>`; null: the master token.
alter table tickets add column proof text;

-- Per subject the order of ids is that of commits; over all subjects it is that of (xid, id), below the oldest transaction that is under way.
alter table events
  add column tenant_id text,
  add column xid xid8 not null default pg_current_xact_id();
update events set tenant_id = e.tenant_id from environments e where subject_kind = 'environment' and subject_id = e.uid::text;
alter table events drop constraint events_subject_kind_check;
alter table events add constraint events_subject_kind_check check (subject_kind in ('environment', 'run', 'host', 'snapshot', 'tenant'));
create index events_in_commit_order on events (xid, id) where subject_kind = 'environment';
