import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { engines, quiet } from '../db/test-database.ts';
import { tenantWith } from '../quotas/quota-testing.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { defaultRunConfig } from './run-config.ts';
import { create, eventsOf, get, runToEnd, statesIn, untilEmpty, untilEnded, untilState } from './run-testing.ts';

describe.each(engines)('the queue of runs on %s', (engine) => {
  let system: TestOrchestrator;
  beforeEach(async () => {
    system = await startTestOrchestrator(engine, { host: { capacity: { cpus: 2, ram_mb: 2_048, vm_count: 2 } } });
  }, 60_000);
  afterEach(async () => {
    await untilEmpty(system);
    await system[Symbol.asyncDispose]();
  });

  const cancel = (id: string) => system.call('POST', `/v1/runs/${id}?action=cancel`);
  const occupant = (cpus = 2) => create(system.call, { shell: 'sleep 60', limits: { cpus } });

  it('holds what has no room yet, and starts it when there is', async () => {
    const first = await occupant();
    const waiting = await create(system.call, { cmd: ['true'] });
    expect(waiting.state).toBe('queued');
    expect(waiting.timings.queue_ms).toBeUndefined();
    await cancel(first.id);
    const run = await untilEnded(system.call, waiting.id);
    expect(run.state).toBe('succeeded');
    expect(run.timings.queue_ms).toBeGreaterThan(0);
    expect(statesIn(await eventsOf(system.call, run.id))).toEqual([
      'queued',
      'starting',
      'running',
      'saving',
      'succeeded',
    ]);
    expect(system.host.mostVms).toBeLessThanOrEqual(2);
  });

  it('fails with queue_timeout what gets no room in time; nothing was started', async () => {
    const first = await occupant();
    const run = await runToEnd(system.call, { cmd: ['true'], queue_timeout_ms: 300 });
    expect(run).toMatchObject({ state: 'failed', error: { code: 'queue_timeout' }, outputs: [] });
    expect(run.timings.queue_ms).toBeGreaterThanOrEqual(250); // clocks of a millisecond's grain
    expect(run.timings.queue_ms).toBeLessThan(5_000);
    expect(run.environment_id).toBeUndefined();
    expect(statesIn(await eventsOf(system.call, run.id))).toEqual(['queued', 'failed']);
    await cancel(first.id);
  });

  it('takes nothing that may not wait', async () => {
    const first = await occupant();
    const answer = await system.call('POST', '/v1/runs', { cmd: ['true'], queue_timeout_ms: 0 });
    expect(answer.status).toBe(503);
    expect(answer.body.error).toMatchObject({ code: 'unavailable', details: { reason: 'no_room' } });
    expect(answer.headers.get('retry-after')).toMatch(/^\d+$/);
    expect((await system.call('GET', '/v1/runs')).body.runs.length).toBe(1);
    await cancel(first.id);
  });

  it('holds up no other tenant’s run while it waits for its own tenant', async () => {
    const { id, call } = await tenantWith(system.call, { cpus: 1 });
    const first = await create(call, { shell: 'sleep 60' });
    const waiting = await create(call, { cmd: ['true'], queue_timeout_ms: 600_000 });
    expect(waiting.state).toBe('queued');
    const atOnce = { cmd: ['true'], queue_timeout_ms: 0 };
    expect((await runToEnd(system.call, atOnce)).state).toBe('succeeded');
    expect((await system.call('PATCH', `/v1/tenants/${id}`, { disabled: true })).status).toBe(200);
    expect((await runToEnd(system.call, atOnce)).state).toBe('succeeded');
    for (const run of [first, waiting]) await call('POST', `/v1/runs/${run.id}?action=cancel`);
  });

  it('refuses at once what no host could ever give', async () => {
    for (const limits of [{ cpus: 64 }, { ram_mb: 1_000_000 }, { storage_gb: 60_000 }]) {
      const answer = await system.call('POST', '/v1/runs', { cmd: ['true'], limits });
      expect(answer.status).toBe(503);
      expect(answer.body.error.message).toContain('no host has sufficient capacity');
      expect(answer.body.error.details.reason).toBe('impossible');
    }
    expect((await system.call('GET', '/v1/runs')).body.runs).toEqual([]);
  });

  it('is left by what is cancelled', async () => {
    const first = await occupant();
    const waiting = await create(system.call, { cmd: ['true'] });
    const answer = await cancel(waiting.id);
    expect(answer.status).toBe(200);
    expect(answer.body.state).toBe('cancelled');
    await cancel(first.id);
    expect((await get(system.call, waiting.id)).state).toBe('cancelled');
    expect(system.host.started.has(`${waiting.id}-exec`)).toBe(false);
  });

  it('gives room in the order of arrival', async () => {
    const first = await occupant();
    const waiting = [];
    for (let n = 0; n < 6; n += 1) waiting.push(await create(system.call, { cmd: ['true'], limits: { cpus: 2 } }));
    await cancel(first.id);
    const runs = [];
    for (const { id } of waiting) runs.push(await untilEnded(system.call, id));
    const started = runs.map(({ started_at }) => started_at ?? '');
    expect(started).toEqual([...started].sort());
    expect(runs.every(({ state }) => state === 'succeeded')).toBe(true);
  });

  it('lets a small run pass a big one, but not for ever', async () => {
    const first = await occupant(1);
    const big = await create(system.call, { shell: 'true', limits: { cpus: 2 } });
    const small = await create(system.call, { cmd: ['true'] });
    expect((await untilEnded(system.call, small.id)).state).toBe('succeeded');
    expect((await get(system.call, big.id)).state).toBe('queued');

    if (engine === 'postgres') {
      await using db = await openDatabase(system.location, quiet);
      const longAgo = new Date(Date.now() - 11_000);
      await db.query
        .updateTable('runs')
        .set({ created_at: longAgo as never }) // only tests set the clock
        .where('id', '=', big.id)
        .execute();
      const late = await create(system.call, { cmd: ['true'] });
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      expect((await get(system.call, late.id)).state).toBe('queued');
      await cancel(first.id);
      const bigRun = await untilEnded(system.call, big.id);
      const lateRun = await untilEnded(system.call, late.id);
      expect((bigRun.started_at ?? '') < (lateRun.started_at ?? '')).toBe(true);
    } else {
      await cancel(first.id);
      await untilEnded(system.call, big.id);
    }
  });

  it('is bounded by what one process drives at a time', async () => {
    await system[Symbol.asyncDispose]();
    system = await startTestOrchestrator(engine, { config: { runs: { ...defaultRunConfig, maxRuns: 3 } } });
    const runs = await Promise.all(Array.from({ length: 9 }, () => create(system.call, { shell: 'sleep 0.2' })));
    for (const { id } of runs) expect((await untilEnded(system.call, id)).state).toBe('succeeded');
    // The fourth VM may come while the first one is being destroyed.
    expect(system.host.mostVms).toBeLessThanOrEqual(6);
  });
});

describe('the queue with two processes', () => {
  it('starts every run once', async () => {
    await using system = await startTestOrchestrator('postgres', {
      host: { capacity: { cpus: 3, ram_mb: 16_384, vm_count: 3 } },
    });
    const second = await system.another();
    const callSecond = callerOf(() => second.url);
    const runs = await Promise.all(
      Array.from({ length: 24 }, (_, n) => create(n % 2 === 0 ? system.call : callSecond, { cmd: ['true'] })),
    );
    for (const { id } of runs) {
      const run = await untilEnded(system.call, id);
      expect(run.state).toBe('succeeded');
      expect(system.host.started.get(`${id}-exec`)).toBe(1);
    }
    expect(system.host.mostVms).toBeLessThanOrEqual(3);
    expect(system.host.createdVms).toBe(24);
    await untilEmpty(system);
  }, 60_000);

  it('serves what a process left queued that died', async () => {
    await using system = await startTestOrchestrator('postgres', { host: { capacity: { cpus: 1 } } });
    const second = await system.another();
    const callSecond = callerOf(() => second.url);
    const first = await create(system.call, { shell: 'sleep 60' });
    await untilState(system.call, first.id, 'running');
    const waiting = await create(callSecond, { cmd: ['true'] });
    await second[Symbol.asyncDispose]();
    await system.call('POST', `/v1/runs/${first.id}?action=cancel`);
    expect((await untilEnded(system.call, waiting.id)).state).toBe('succeeded');
    await untilEmpty(system);
  }, 60_000);
});
