/** Several orchestrators over one PostgreSQL: a snapshot or fork may be asked for, repeated and deleted through any of them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Orchestrator } from '../app.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe('snapshots of two replicas', () => {
  let test: TestOrchestrator;
  let second: Orchestrator;
  let calls: TestOrchestrator['call'][];
  beforeAll(async () => {
    test = await startTestOrchestrator('postgres');
    second = await test.another();
    calls = [test.call, callerOf(() => second.url)];
  }, 60_000);
  afterAll(() => test?.[Symbol.asyncDispose]());

  /** Twenty times, half of them through each. */
  const manyTimes = (method: string, path: string, body?: object, key?: string) =>
    Promise.all(
      Array.from({ length: 10 }, () => calls)
        .flat()
        .map((call) => call(method, path, body, key === undefined ? {} : { headers: { 'idempotency-key': key } })),
    );

  it('are made once for one key, and so are forks', async () => {
    const { body: source } = await test.call('POST', '/v1/environments', { task_id: 'source' });
    const taken = await manyTimes('POST', `/v1/environments/${source.id}/snapshots`, { comment: 'one' }, 'snap');
    expect(new Set(taken.map(({ status, body }) => `${status} ${JSON.stringify(body)}`)).size).toBe(1);
    expect(taken[0]?.status).toBe(201);
    expect(test.host.snapshots.kept.size).toBe(1);
    const forked = await manyTimes('POST', `/v1/environments/${source.id}?action=fork`, { count: 2 }, 'fork');
    expect(new Set(forked.map(({ status, body }) => `${status} ${JSON.stringify(body)}`)).size).toBe(1);
    expect(forked[0]?.status).toBe(201);
    expect(test.host.vms.size).toBe(3);
    expect(test.host.snapshots.kept.size).toBe(2);
  });

  it('restore once at a time, and tell listeners of the other', async () => {
    const { body: source } = await test.call('POST', '/v1/environments', { task_id: 'restored' });
    const { body: taken } = await test.call('POST', `/v1/environments/${source.id}/snapshots`);
    const before = test.host.restored;
    const answers = await manyTimes('POST', `/v1/snapshots/${taken.id}?action=restore`);
    const done = answers.filter(({ status }) => status === 204).length;
    expect(done).toBeGreaterThan(0);
    expect(answers.every(({ status }) => status === 204 || status === 409)).toBe(true);
    expect(test.host.restored - before).toBe(done);
    expect((await calls[1]?.('GET', `/v1/environments/${source.id}`))?.body).toMatchObject({ state: 'running' });
  });

  it('are deleted once', async () => {
    const { snapshots } = (await test.call('GET', '/v1/snapshots')).body;
    for (const { id } of snapshots) {
      const answers = await manyTimes('DELETE', `/v1/snapshots/${id}?force=true`);
      expect(answers.some(({ status }) => status === 204)).toBe(true);
      expect(answers.every(({ status }) => status === 204 || status === 404)).toBe(true);
    }
    expect(test.host.snapshots.kept.size).toBe(0);
    expect((await calls[1]?.('GET', '/v1/snapshots'))?.body).toEqual({ snapshots: [] });
  });
});
