/** For tests and the benchmark of leaks: environments that come and go in all the ways in which clients make them, thousands of times. */
import { type HeldResources, heldResources, liveHeapBytes } from '@fuse/testing';
import { sql } from 'kysely';
import type { Db, Queryable } from '../db/db.ts';
import { defaultExecConfig } from '../execs/exec-config.ts';
import { defaultIntervals } from '../reconciling/reconciler.ts';
import { until, untilEmpty } from '../runs/run-testing.ts';
import { type callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

type Call = ReturnType<typeof callerOf>;
type Life = (call: Call, task: string) => Promise<void>;

export interface Churn {
  lives: number;
  atOnce: number;
  /** Of task ids: tells rounds apart. */
  round: string;
}

/** Resolves when the last one is destroyed. Every tenth does more than come and go. */
export async function churn(call: Call, { lives, atOnce, round }: Churn): Promise<void> {
  let next = 0;
  const one = async () => {
    for (let at = next++; at < lives; at = next++) {
      const special = at % 10 === 0 ? unusual[(at / 10) % unusual.length] : undefined;
      await (special ?? plain)(call, `${round}-${at}`);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, one));
}

const plain: Life = async (call, task_id) => {
  await made(call, { task_id });
  await destroyed(call, task_id);
};

const unusual: readonly Life[] = [
  async function runsCommands(call, task_id) {
    await made(call, { task_id, env: { NAME: 'value' }, startup_script: 'echo "$NAME"' });
    await expectStatus(200, call('POST', `/v1/environments/fuse-${task_id}?action=exec`, { cmd: ['true'] }));
    await destroyed(call, task_id);
  },
  async function isFollowed(call, task_id) {
    await made(call, { task_id });
    const events = call('GET', `/v1/environments/fuse-${task_id}/events`); // ends with it
    await destroyed(call, task_id);
    await expectStatus(200, events, 404);
  },
  async function isMadeOnce(call, task_id) {
    const headers = { 'idempotency-key': task_id };
    const both = [0, 1].map(() => expectStatus(201, call('POST', '/v1/environments', { task_id }, { headers })));
    await Promise.all(both);
    await destroyed(call, task_id);
  },
  async function failsToStart(call, task_id) {
    await expectStatus(400, call('POST', '/v1/environments', { task_id, startup_script: 'exit 3' }));
  },
  async function isDestroyedWhileItStarts(call, task_id) {
    const body = { task_id, wait: false, startup_script: 'sleep 60', startup_script_timeout_seconds: 90 };
    await expectStatus(202, call('POST', '/v1/environments', body));
    await destroyed(call, task_id);
  },
  async function losesItsClient(call, task_id) {
    const client = new AbortController();
    const asked = call('POST', '/v1/environments', { task_id }, { signal: client.signal }).catch(() => {}); // aborted
    setTimeout(() => client.abort(), 2);
    await asked;
    // It may have been undone, or not be there yet: then it is what `destroyUnclaimed` finds.
    await expectStatus(204, call('DELETE', `/v1/environments/fuse-${task_id}`), 404);
  },
  async function pauses(call, task_id) {
    await made(call, { task_id });
    await expectStatus(200, call('POST', `/v1/environments/fuse-${task_id}?action=pause`));
    await destroyed(call, task_id);
  },
];

const made = (call: Call, body: object) => expectStatus(201, call('POST', '/v1/environments', body));
const destroyed = (call: Call, task: string) => expectStatus(204, call('DELETE', `/v1/environments/fuse-${task}`));

async function expectStatus(expected: number, asked: ReturnType<Call>, orElse = expected): Promise<void> {
  const { status, body } = await asked;
  if (status !== expected && status !== orElse)
    throw new Error(`answered ${status}, not ${expected}: ${JSON.stringify(body)}`);
}

/** What is gone is forgotten at once, so that whatever is left was left behind. */
export const startForgetful = (): Promise<TestOrchestrator> =>
  startTestOrchestrator('postgres', {
    host: { capacity: { cpus: 64, ram_mb: 65_536, storage_gb: 1_000, free_storage_gb: 1_000, vm_count: 64 } },
    config: {
      execs: { ...defaultExecConfig, retentionMs: 200, collectEveryMs: 200 },
      reconciling: { ...defaultIntervals, intervalMs: 100, leaseMs: 2_000, keepGoneMs: 300, pruneEveryMs: 300 },
    },
  });

export interface Left {
  held: HeldResources;
  heapBytes: number;
  rows: Record<string, number>;
}

/** Of this process and the database, once all that ends by itself has ended: nothing of an environment is in any row. */
export async function whatIsLeft(system: TestOrchestrator, db: Db): Promise<Left> {
  await destroyUnclaimed(system);
  await untilEmpty(system);
  system.host.started.clear(); // the test host's own book of what it did
  const rows = await until(
    () => rowCounts(db.query),
    ({ environments, events }) => environments === 0 && events === 0,
    60_000,
  );
  return { held: await heldResources(), heapBytes: await liveHeapBytes(), rows };
}

/** A create that nobody waits for any more may come to its end after its client has looked. */
async function destroyUnclaimed({ call }: Pick<TestOrchestrator, 'call'>): Promise<void> {
  await until(
    async () => {
      const { environments } = (await call('GET', '/v1/environments')).body as { environments: { id: string }[] };
      for (const { id } of environments) await expectStatus(204, call('DELETE', `/v1/environments/${id}`), 404);
      return environments.length;
    },
    (count) => count === 0,
  );
}

/** Tables that keep what was on purpose: answers under a key for a day, the audit log, the ledger of usage. */
const KEPT = new Set(['idempotency_keys', 'audit', 'usage']);

async function rowCounts(db: Queryable): Promise<Record<string, number>> {
  const { rows } = await sql<{ name: string }>`
    select tablename as name from pg_tables where schemaname = 'public' order by 1`.execute(db);
  const counts: Record<string, number> = {};
  for (const { name } of rows.filter((table) => !KEPT.has(table.name))) {
    const counted = await sql<{ count: number }>`select count(*)::int as count from ${sql.table(name)}`.execute(db);
    counts[name] = counted.rows[0]?.count ?? 0;
  }
  return counts;
}
