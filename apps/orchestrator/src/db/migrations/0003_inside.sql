-- Why: what is done inside environments: startups that outlast a request, healthchecks, exposed ports, execs that can be read after their environment is gone,
-- tickets that let a browser open one socket.

alter table environments
  -- {files?: {path: base64}, script?, timeout_seconds, waited}: what is still to be done before it runs; null once it is done. It may hold secrets.
  add column startup jsonb,
  add column healthcheck jsonb,
  -- Last verdict: {state, since, failures?, message?}.
  add column health jsonb,
  -- [{port, as?}]
  add column expose jsonb,
  -- Object with its execs, readable until `archive_until`; set when its destruction ends.
  add column archive_key text,
  add column archive_until timestamptz;
create index environments_archived on environments (archive_until) where archive_key is not null;
create index environments_gone_by_id on environments (tenant_id, id, gone_at) where gone_at is not null;

-- One socket each, for `purpose` {for, session?, port?}. Spent by deleting the row.
create table tickets (
  -- sha256 of the ticket.
  hash bytea primary key,
  tenant_id text not null,
  environment_uid uuid not null references environments (uid) on delete cascade,
  purpose jsonb not null,
  expires_at timestamptz not null
);
create index tickets_expired on tickets (expires_at);
