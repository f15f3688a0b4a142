/** Runs as they are read: the row with its environment and its outputs. */
import { type Selectable, sql } from 'kysely';
import { jsonb, type Queryable } from '../db/db.ts';
import type { RunOutputsTable, RunRow } from '../db/schema.ts';

export type RunOutputRow = Selectable<RunOutputsTable>;

export type RunRecord = RunRow & {
  environment_id: string | null;
  /** From the run's end until nothing of its VM was left. */
  destroy_ms: number | null;
};

const destroyMs = sql<number | null>`
  case when environments.gone_at is not null and runs.finished_at is not null
  then round(greatest(0, extract(epoch from environments.gone_at - runs.finished_at)) * 1000, 1)::float8 end`;

const records = (query: Queryable) =>
  query
    .selectFrom('runs')
    .leftJoin('environments', 'environments.uid', 'runs.environment_uid')
    .select(['environments.id as environment_id', destroyMs.as('destroy_ms')]);

/** `tenantId` undefined: whoever's it is, for callers that have proved their right otherwise. */
export function findRun(query: Queryable, id: string, tenantId?: string): Promise<RunRecord | undefined> {
  const found = records(query).selectAll('runs').where('runs.id', '=', id);
  return (tenantId === undefined ? found : found.where('runs.tenant_id', '=', tenantId)).executeTakeFirst();
}

export function outputsOf(query: Queryable, runIds: readonly string[]): Promise<RunOutputRow[]> {
  if (runIds.length === 0) return Promise.resolve([]);
  return query
    .selectFrom('run_outputs')
    .selectAll()
    .where('run_id', 'in', [...runIds])
    .orderBy('run_id')
    .orderBy('position')
    .execute();
}

export function findOutput(
  query: Queryable,
  runId: string,
  which: { path: string } | { position: number },
): Promise<RunOutputRow | undefined> {
  const found = query.selectFrom('run_outputs').selectAll().where('run_id', '=', runId);
  return (
    'path' in which ? found.where('path', '=', which.path) : found.where('position', '=', which.position)
  ).executeTakeFirst();
}

export async function tenantOfRun(query: Queryable, runId: string): Promise<string | undefined> {
  return (await query.selectFrom('runs').select('tenant_id').where('id', '=', runId).executeTakeFirst())?.tenant_id;
}

export interface RunFilter {
  tenantId: string;
  state?: string | undefined;
  image?: string | undefined;
  labels: Record<string, string>;
  /** Id of the last run of the page before. */
  beforeId?: string | undefined;
}

const SUMMARY_COLUMNS = [
  'runs.id',
  'runs.tenant_id',
  'runs.state',
  'runs.version',
  'runs.image',
  'runs.cpus',
  'runs.ram_mb',
  'runs.storage_gb',
  'runs.timeout_ms',
  'runs.labels',
  'runs.network',
  'runs.request',
  'runs.environment_uid',
  'runs.cancel_requested_at',
  'runs.queue_deadline',
  'runs.outcome',
  'runs.exit_code',
  'runs.signal',
  'runs.oom_killed',
  'runs.stdout_bytes',
  'runs.stderr_bytes',
  'runs.truncated',
  'runs.log_truncated',
  'runs.skipped_outputs',
  'runs.frames_object_key',
  'runs.error_code',
  'runs.error_message',
  'runs.timings',
  'runs.state_since',
  'runs.lease_owner',
  'runs.lease_until',
  'runs.created_at',
  'runs.started_at',
  'runs.finished_at',
  'runs.updated_at',
  'runs.expires_at',
] as const;

/** Newest first, without the streams: they are for one run at a time. */
export function listRuns(query: Queryable, filter: RunFilter, limit: number): Promise<RunRecord[]> {
  let found = records(query)
    .select(SUMMARY_COLUMNS)
    .select([sql<null>`null`.as('stdout'), sql<null>`null`.as('stderr')])
    .where('runs.tenant_id', '=', filter.tenantId);
  if (filter.state !== undefined) found = found.where(sql<boolean>`runs.state = ${filter.state}`);
  if (filter.image !== undefined) found = found.where('runs.image', '=', filter.image);
  if (Object.keys(filter.labels).length > 0) found = found.where(sql<boolean>`runs.labels @> ${jsonb(filter.labels)}`);
  if (filter.beforeId !== undefined) found = found.where('runs.id', '<', filter.beforeId);
  return found.orderBy('runs.id', 'desc').limit(limit).execute();
}

/** How many outputs each of these runs has. */
export async function countOutputs(query: Queryable, runIds: readonly string[]): Promise<Map<string, number>> {
  if (runIds.length === 0) return new Map();
  const rows = await query
    .selectFrom('run_outputs')
    .select(['run_id', sql<number>`count(*)`.as('outputs')])
    .where('run_id', 'in', [...runIds])
    .groupBy('run_id')
    .execute();
  return new Map(rows.map((row) => [row.run_id, row.outputs]));
}
