/**
 * How the whole is, from the database, whichever process is asked: looked at when metrics are asked for, once in SAMPLE_MS at most. Labels are states, kinds
 * and resources; never a tenant, host or environment.
 */
import { environmentStates, isTerminalRunState, runStates } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import { sql } from 'kysely';
import { Gauge, type Registry } from 'prom-client';
import type { Db } from '../db/db.ts';

const SAMPLE_MS = 5_000;
const resources = ['cpus', 'ram_mb', 'storage_gb'] as const;

interface Sample {
  environments: Record<string, number> | null;
  runs: Record<string, number> | null;
  environments_waiting: number;
  environments_waiting_seconds: number;
  runs_waiting: number;
  runs_waiting_seconds: number;
  capacity: Record<string, number> | null;
  reserved: Record<string, number> | null;
  templates: number;
  health_checked: number;
  health_failing: number;
  tracked: number;
  tenants: number;
  api_keys: number;
}

export function installFleetMetrics(registry: Registry, db: Db, log: Logger): void {
  let sampled: Promise<Sample | undefined> | undefined;
  const sample = () => {
    if (sampled !== undefined) return sampled;
    sampled = takeSample(db).catch((error: unknown) => {
      log.warn({ err: error }, 'metrics of the fleet not taken');
      return undefined; // without a database nobody knows
    });
    setTimeout(() => {
      sampled = undefined;
    }, SAMPLE_MS).unref();
    return sampled;
  };
  const gauge = (name: string, help: string, value: (sample: Sample) => number) =>
    new Gauge({
      name: `orchestrator_${name}`,
      help,
      registers: [registry],
      async collect() {
        const now = await sample();
        if (now === undefined) this.reset();
        else this.set(value(now));
      },
    });
  const gauges = <Label extends string>(
    name: string,
    help: string,
    label: Label,
    values: (sample: Sample) => Record<string, number>,
  ) =>
    new Gauge({
      name: `orchestrator_${name}`,
      help,
      labelNames: [label],
      registers: [registry],
      async collect() {
        const now = await sample();
        this.reset();
        for (const [key, value] of Object.entries(now === undefined ? {} : values(now)))
          this.set({ [label]: key } as Record<Label, string>, value); // its one key is that label
      },
    });

  gauges('environments', 'Environments that are not gone', 'state', ({ environments }) => all(live, environments));
  gauges('runs', 'Runs that have not ended', 'state', ({ runs }) => all(open, runs));
  gauges('queue_length', 'Who waits for room', 'kind', (now) => ({
    environment: now.environments_waiting,
    run: now.runs_waiting,
  }));
  gauges('queue_oldest_seconds', 'How long the oldest of them has waited', 'kind', (now) => ({
    environment: now.environments_waiting_seconds,
    run: now.runs_waiting_seconds,
  }));
  gauges('fleet_capacity', 'Of hosts that take new environments', 'resource', ({ capacity }) =>
    all(resources, capacity),
  );
  gauges('fleet_reserved', 'By environments that are not gone', 'resource', ({ reserved }) => all(resources, reserved));
  gauge('fleet_templates', 'Templates that hosts hold', ({ templates }) => templates);
  gauge('fleet_tracked_vms', 'Environments that should have a VM', ({ tracked }) => tracked);
  gauge(
    'reconcile_health_checked_vms',
    'Environments whose healthcheck has a verdict',
    ({ health_checked }) => health_checked,
  );
  gauge('reconcile_health_failing_vms', 'Environments whose healthcheck fails', ({ health_failing }) => health_failing);
  gauge('tenants', 'Tenants', ({ tenants }) => tenants);
  gauge('api_keys', 'API keys that are good', ({ api_keys }) => api_keys);
}

const live = environmentStates.filter((state) => state !== 'destroyed' && state !== 'failed');
const open = runStates.filter((state) => !isTerminalRunState(state));

const all = (keys: readonly string[], found: Record<string, number> | null): Record<string, number> =>
  Object.fromEntries(keys.map((key) => [key, found?.[key] ?? 0]));

async function takeSample(db: Db): Promise<Sample> {
  const { rows } = await sql<Sample>`
    with e as materialized (
      select state, cpus, ram_mb, storage_gb, host_id, health, healthcheck, queue_deadline, created_at
        from environments where state not in ('destroyed', 'failed')),
    r as materialized (select state, created_at from runs where finished_at is null),
    h as materialized (select cpus, ram_mb, storage_gb, templates from hosts where state = 'active' and lost_at is null and unreachable_at is null)
    select
      (select jsonb_object_agg(state, count) from (select state, count(*)::int as count from e group by state) as c) as environments,
      (select jsonb_object_agg(state, count) from (select state, count(*)::int as count from r group by state) as c) as runs,
      (select count(*)::int from e where queue_deadline is not null) as environments_waiting,
      (select coalesce(extract(epoch from now() - min(created_at)), 0)::float8 from e where queue_deadline is not null) as environments_waiting_seconds,
      (select count(*)::int from r where state = 'queued') as runs_waiting,
      (select coalesce(extract(epoch from now() - min(created_at)), 0)::float8 from r where state = 'queued') as runs_waiting_seconds,
      (select jsonb_build_object('cpus', sum(cpus), 'ram_mb', sum(ram_mb), 'storage_gb', sum(storage_gb)) from h) as capacity,
      (select jsonb_build_object('cpus', sum(cpus) filter (where state <> 'paused'), 'ram_mb', sum(ram_mb) filter (where state <> 'paused'),
        'storage_gb', sum(storage_gb)) from e where host_id is not null) as reserved,
      (select coalesce(sum(jsonb_array_length(templates)), 0)::int from h) as templates,
      (select count(*)::int from e where healthcheck is not null and health is not null) as health_checked,
      (select count(*)::int from e where health ->> 'state' = 'failing') as health_failing,
      (select count(*)::int from e where state in ('running', 'draining', 'pausing', 'paused', 'resuming')) as tracked,
      (select count(*)::int from tenants) as tenants,
      (select count(*)::int from api_keys where revoked_at is null and (expires_at is null or expires_at > now())) as api_keys`.execute(
    db.query,
  );
  const [row] = rows;
  if (row === undefined) throw new Error('the sample has no row');
  return row;
}
