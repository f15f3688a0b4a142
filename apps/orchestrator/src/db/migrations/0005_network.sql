-- Why: what guests may reach: policies of environments and runs, maxima and defaults of tenants, hosts that can give no network, what was sent and refused.

alter table environments
  -- Its own policy, canonical: {egress, allow, deny}.
  add column network jsonb not null default '{"egress": "none", "allow": [], "deny": []}',
  -- Whether its VM has a network card, as its host says; null: not known yet.
  add column network_card boolean,
  -- {sent_bytes, received_bytes, allowed_count, refused_count, refused_seq, told_minute, told}: the highest that its host has reported. What is here is in `usage`
  -- and was told. Null: nothing yet.
  add column network_totals jsonb;
alter table runs add column network jsonb not null default '{"egress": "none", "allow": [], "deny": []}';
-- As its environment's was when it was taken.
alter table snapshots add column network jsonb not null default '{"egress": "none", "allow": [], "deny": []}';
-- Null: none, and the deployment's.
alter table tenants add column network_max jsonb, add column network_default jsonb;
-- Why it can give no VM a network card; null: it can.
alter table hosts add column no_network text;
