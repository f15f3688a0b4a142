import { quotaNames } from '@fuse/contract';
import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Db } from '../db/db.ts';
import { openDatabase } from '../db/open.ts';
import { engines, quiet } from '../db/test-database.ts';
import { runToEnd, until, untilEnded } from '../runs/run-testing.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { overQuota, setQuotas, tenantWith, usedBy } from './quota-testing.ts';

const capacity = { cpus: 400, ram_mb: 400_000, storage_gb: 1_000, free_storage_gb: 1_000, vm_count: 200 };

describe.each(engines)('quotas on %s', (engine) => {
  let test: TestOrchestrator;
  type Call = TestOrchestrator['call'];
  const gone: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    test = await startTestOrchestrator(engine, { host: { capacity } });
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());
  afterEach(async () => {
    await Promise.all(gone.splice(0).map((destroy) => destroy()));
  });

  const tenant = (quotas: object) => tenantWith(test.call, quotas);
  let tasks = 0;
  const create = (call: Call, body: object = {}) =>
    call('POST', '/v1/environments', { task_id: `q-${++tasks}`, ...body });
  const created = async (call: Call, body: object = {}): Promise<string> => {
    const answer = await create(call, body);
    expect(answer, JSON.stringify(answer.body)).toMatchObject({ status: 201 });
    gone.push(() => destroy(call, answer.body.id));
    return answer.body.id;
  };
  const destroy = (call: Call, id: string) => call('DELETE', `/v1/environments/${id}`);
  const act = (call: Call, id: string, action: string, body?: object) =>
    call('POST', `/v1/environments/${id}?action=${action}`, body);
  /** The embedded database has one user: there rows are looked at through the API alone. */
  const withDb = async (work: (db: Db) => Promise<unknown>) => {
    await using db = await openDatabase(test.location, quiet);
    await work(db);
  };

  it.each([
    ['environments', { environments: 2 }, {}, 2, 2],
    ['cpus', { cpus: 5 }, { cpus: 2 }, 5, 4],
    ['ram_mb', { ram_mb: 1_100 }, { ram_mb: 512 }, 1_100, 1_024],
    ['storage_gb', { storage_gb: 5 }, { storage_gb: 2 }, 5, 4],
  ] as const)('of %s are kept, and given back once', async (quota, quotas, spec, limit, used) => {
    const { call } = await tenant(quotas);
    const first = await created(call, { spec });
    await created(call, { spec });
    expect(await create(call, { spec })).toMatchObject(overQuota(quota, limit, used));
    expect((await usedBy(call))[quota]).toBe(used);
    await destroy(call, first);
    await destroy(call, first);
    await created(call, { spec });
    expect(await create(call, { spec })).toMatchObject(overQuota(quota, limit, used));
  });

  it('say at once that something is more than a tenant could ever have, also to those who would wait', async () => {
    const { call } = await tenant({ cpus: 2 });
    const spec = { cpus: 3 };
    expect(await create(call, { spec, queue_timeout_seconds: 60 })).toMatchObject(overQuota('cpus', 2, 0));
    const run = { shell: 'true', limits: { cpus: 3 }, queue_timeout_ms: 60_000 };
    expect(await call('POST', '/v1/runs', run)).toMatchObject(overQuota('cpus', 2, 0));
  });

  it('of one tenant are nobody else’s', async () => {
    const [one, other] = [await tenant({ environments: 1 }), await tenant({ environments: 1 })];
    await created(one.call);
    await created(other.call);
    await created(test.call);
    expect(await create(one.call)).toMatchObject(overQuota('environments', 1, 1));
  });

  it('count a paused environment with its disk alone, and are asked again to resume it', async () => {
    const { call } = await tenant({ cpus: 2, ram_mb: 2_048 });
    const paused = await created(call, { spec: { cpus: 2 } });
    const snapshot = await call('POST', `/v1/environments/${paused}/snapshots`);
    expect(snapshot.status).toBe(201);
    expect(await act(call, paused, 'pause')).toMatchObject({ status: 200 });
    expect(await usedBy(call)).toMatchObject({ environments: 1, cpus: 0, ram_mb: 0, storage_gb: 2 });
    const other = await created(call, { spec: { cpus: 1 } });
    expect(await act(call, paused, 'resume')).toMatchObject(overQuota('cpus', 2, 1));
    expect(await call('POST', `/v1/snapshots/${snapshot.body.id}?action=restore`)).toMatchObject(
      overQuota('cpus', 2, 1),
    );
    expect((await call('GET', `/v1/environments/${paused}`)).body.state).toBe('paused');
    await destroy(call, other);
    const resumed = await Promise.all(Array.from({ length: 5 }, () => act(call, paused, 'resume')));
    expect(resumed.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect(await usedBy(call)).toMatchObject({ environments: 1, cpus: 2 });
  });

  it('admit all forks or none', async () => {
    const { call } = await tenant({ environments: 3 });
    const source = await created(call);
    expect(await act(call, source, 'fork', { count: 3 })).toMatchObject(overQuota('environments', 3, 1));
    expect(await usedBy(call)).toMatchObject({ environments: 1, snapshot_bytes: 0 });
    const forked = await act(call, source, 'fork', { count: 2 });
    expect(forked.status).toBe(201);
    for (const { id } of forked.body.environments) gone.push(() => destroy(call, id));
    expect(await usedBy(call)).toMatchObject({ environments: 3 });
  });

  it('of creates in a minute come with their headers, count runs and forks, and no refusal or replay', async () => {
    const { id: tenantId, call } = await tenant({ creates_per_minute: 5 });
    const first = await create(call);
    gone.push(() => destroy(call, first.body.id));
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'ratelimit-limit': '5',
      'ratelimit-remaining': '4',
      'ratelimit-policy': '5;w=60;comment="creates_per_minute"',
    });
    expect(Number(first.headers.get('ratelimit-reset'))).toBeGreaterThan(0);
    const source = first.body.id as string;
    const tooMany = await act(call, source, 'fork', { count: 6 });
    expect(tooMany).toMatchObject(overQuota('creates_per_minute', 5, 1));
    expect(tooMany.headers.get('retry-after')).toBeNull(); // it never fits
    const forks = await act(call, source, 'fork', { count: 2 });
    expect(forks.headers.get('ratelimit-remaining')).toBe('2');
    for (const { id } of forks.body.environments) gone.push(() => destroy(call, id));
    const once = { headers: { 'idempotency-key': `k-${tenantId}` } };
    const run = await call('POST', '/v1/runs', { shell: 'true' }, once);
    expect(run.headers.get('ratelimit-remaining')).toBe('1');
    expect((await call('POST', '/v1/runs', { shell: 'true' }, once)).body.id).toBe(run.body.id);
    expect((await usedBy(call)).creates_per_minute).toBe(4);
    await runToEnd(call, { shell: 'true' });
    const refused = await create(call);
    expect(refused).toMatchObject(overQuota('creates_per_minute', 5, 5));
    expect(refused.headers.get('ratelimit-remaining')).toBe('0');
    const retryAfter = Number(refused.headers.get('retry-after'));
    expect(retryAfter).toBeGreaterThan(0);
    expect(retryAfter).toBeLessThanOrEqual(60);
    if (engine !== 'postgres') return;
    await withDb((db) =>
      sql`update environments set created_at = created_at - interval '61 seconds' where tenant_id = ${tenantId}`.execute(
        db.query,
      ),
    );
    expect((await usedBy(call)).creates_per_minute).toBe(2);
    await created(call);
  });

  it('of creates lose nothing to what another one refuses', async () => {
    const { call } = await tenant({ creates_per_minute: 5, environments: 1 });
    const source = await created(call);
    for (const refused of [
      await create(call),
      await act(call, source, 'fork'),
      await call('POST', '/v1/runs', { shell: 'true' }),
      await call('POST', '/v1/environments', { task_id: 'no' }, { headers: { 'idempotency-key': 'refused' } }),
    ]) {
      expect(refused).toMatchObject(overQuota('environments', 1, 1));
      expect(refused.headers.get('ratelimit-remaining')).toBe('4');
    }
    expect((await usedBy(call)).creates_per_minute).toBe(1);
  });

  it('of the longest run hold for environments, their renewal and runs; what says nothing gets no more', async () => {
    const { call } = await tenant({ max_run_seconds: 100 });
    expect(await create(call, { spec: { max_runtime_seconds: 101 } })).toMatchObject(
      overQuota('max_run_seconds', 100, 0),
    );
    const id = await created(call);
    const { body } = await call('GET', `/v1/environments/${id}`);
    expect(body.spec.max_runtime_seconds).toBe(100);
    expect(await call('PATCH', `/v1/environments/${id}`, { expires_in_seconds: 101 })).toMatchObject(
      overQuota('max_run_seconds', 100, 0),
    );
    expect(await call('PATCH', `/v1/environments/${id}`, { expires_in_seconds: 50 })).toMatchObject({ status: 200 });
    const long = { shell: 'true', limits: { timeout_ms: 100_001 } };
    expect(await call('POST', '/v1/runs', long)).toMatchObject(overQuota('max_run_seconds', 100, 0));
    const run = await runToEnd(call, { shell: 'true' });
    expect(run).toMatchObject({ state: 'succeeded', limits: { timeout_ms: 100_000 } });
  });

  it('refuse a run at once, or let it wait for its own tenant when it says so', async () => {
    const { call } = await tenant({ environments: 1 });
    const id = await created(call);
    expect(await call('POST', '/v1/runs', { shell: 'true' })).toMatchObject(overQuota('environments', 1, 1));
    const queued = await call('POST', '/v1/runs', { shell: 'echo late', queue_timeout_ms: 60_000 });
    expect(queued.body.state).toBe('queued');
    const waiting = create(call, { queue_timeout_seconds: 60 });
    await destroy(call, id);
    expect(await untilEnded(call, queued.body.id)).toMatchObject({ state: 'succeeded', stdout: 'late\n' });
    const late = await waiting;
    expect(late, JSON.stringify(late.body)).toMatchObject({ status: 201 });
    await destroy(call, late.body.id);
    await until(
      () => usedBy(call),
      ({ environments }) => environments === 0,
    );
  });

  it('of snapshots are asked before one is taken, and again when its bytes are known', async () => {
    const { id: tenantId, call } = await tenant({ snapshot_bytes: 1_000 });
    const id = await created(call);
    const take = () => call('POST', `/v1/environments/${id}/snapshots`);
    const write = (bytes: number) => act(call, id, 'exec', { shell: `head -c ${bytes} /dev/zero > big` });
    await write(600);
    const kept = test.host.snapshots.kept.size;
    const first = await take();
    expect(first).toMatchObject({ status: 201 });
    const bytes: number = first.body.stored_bytes;
    expect(await usedBy(call)).toMatchObject({ snapshot_bytes: bytes });
    expect(await take()).toMatchObject(overQuota('snapshot_bytes', 1_000, bytes)); // found out when it was there
    await until(
      async () => (await call('GET', '/v1/snapshots')).body.snapshots,
      (left) => left.length === 1,
    );
    await until(
      () => test.host.snapshots.kept.size,
      (size) => size === kept + 1,
    );
    await setQuotas(test.call, tenantId, { snapshot_bytes: bytes });
    expect(await take()).toMatchObject(overQuota('snapshot_bytes', bytes, bytes)); // nothing was begun
    expect(await act(call, id, 'fork')).toMatchObject(overQuota('snapshot_bytes', bytes, bytes));
    await call('DELETE', `/v1/snapshots/${first.body.id}`);
    expect(await usedBy(call)).toMatchObject({ snapshot_bytes: 0 });
    const again = await take();
    expect(again).toMatchObject({ status: 201 });
    await call('DELETE', `/v1/snapshots/${again.body.id}`);
  });

  it('of outputs skip what has no room, and refuse runs and uploads once nothing is left', async () => {
    const { call } = await tenant({ output_bytes: 1_000 });
    const upload = (bytes: number) => call('POST', '/v1/files', 'x'.repeat(bytes));
    const file = await upload(400);
    expect(file.status).toBe(201);
    expect(await upload(601)).toMatchObject(overQuota('output_bytes', 1_000, 400));
    const shell = 'head -c 500 /dev/zero > a; head -c 200 /dev/zero > b';
    const run = await runToEnd(call, { shell, outputs: ['a', 'b'] });
    expect(run).toMatchObject({ state: 'succeeded', skipped_outputs: [{ path: 'b', reason: 'quota_exceeded' }] });
    expect(run.outputs.map(({ path }) => path)).toContain('a');
    const { output_bytes } = await usedBy(call);
    expect(output_bytes).toBe(400 + run.outputs.reduce((sum, { size_bytes }) => sum + size_bytes, 0));
    expect((await upload(1_000 - output_bytes)).status).toBe(201);
    expect(await upload(1)).toMatchObject(overQuota('output_bytes', 1_000, 1_000));
    expect(await call('POST', '/v1/runs', { shell, outputs: ['a'] })).toMatchObject(
      overQuota('output_bytes', 1_000, 1_000),
    );
    const without = await runToEnd(call, { shell });
    expect(without).toMatchObject({ state: 'succeeded' });
    expect(without.skipped_outputs ?? []).toEqual([]);
    await call('DELETE', `/v1/files/${file.body.id}`);
    expect((await usedBy(call)).output_bytes).toBe(600);
  });

  it('of nothing at all let nothing start, and a disabled tenant starts nothing either', async () => {
    const none = Object.fromEntries(quotaNames.map((name) => [name, 0]));
    const { id, call } = await tenant(none);
    expect(await create(call)).toMatchObject({ status: 429 });
    expect(await call('POST', '/v1/runs', { shell: 'true' })).toMatchObject({ status: 429 });
    expect(await call('POST', '/v1/files', 'x')).toMatchObject({ status: 429 });
    const free = await tenant({});
    const paused = await created(free.call);
    await act(free.call, paused, 'pause');
    await test.call('PATCH', `/v1/tenants/${free.id}`, { disabled: true });
    expect(await create(free.call)).toMatchObject({ status: 403, body: { error: { code: 'forbidden' } } });
    expect(await act(free.call, paused, 'resume')).toMatchObject({ status: 403 });
    await test.call('PATCH', `/v1/tenants/${free.id}`, { disabled: false });
    await act(free.call, paused, 'resume');
    expect((await test.call('GET', `/v1/tenants/${id}`)).body.quotas).toEqual(none);
  });

  it('are in nobody’s way where there are none', async () => {
    if (engine !== 'postgres') return; // another connection is needed
    const { id, call } = await tenant({});
    await withDb((db) =>
      db.transaction(async (tx) => {
        await tx.selectFrom('tenants').selectAll().where('id', '=', id).forNoKeyUpdate().execute();
        await created(call);
        expect(await runToEnd(call, { shell: 'true' })).toMatchObject({ state: 'succeeded' });
      }),
    );
  });
});
