/** Several orchestrators over one PostgreSQL: any of them serves any call, and one that ends leaves nothing undone. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Orchestrator } from './app.ts';
import {
  type Answer,
  callerOf,
  startTestOrchestrator,
  TEST_TOKEN,
  type TestOrchestrator,
} from './test-orchestrator.ts';

describe('two replicas', () => {
  let test: TestOrchestrator;
  let second: Orchestrator;
  let callSecond: TestOrchestrator['call'];
  beforeAll(async () => {
    test = await startTestOrchestrator('postgres');
    second = await test.another();
    callSecond = callerOf(() => second.url);
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());

  it('serve each other’s environments', async () => {
    const { body: made } = await test.call('POST', '/v1/environments', { task_id: 'shared' });
    expect((await callSecond('GET', `/v1/environments/${made.id}`)).body).toEqual(made);
    const done = await callSecond('POST', `/v1/environments/${made.id}?action=exec`, { cmd: ['echo', 'hi'] });
    expect(done.body).toMatchObject({ stdout: 'hi\n' });
    expect((await callSecond('DELETE', `/v1/environments/${made.id}`)).status).toBe(204);
    expect((await test.call('GET', `/v1/environments/${made.id}`)).status).toBe(404);
  });

  it('tell each other’s events', async () => {
    await test.call('POST', '/v1/environments', { task_id: 'heard' });
    const response = await fetch(`${second.url}/v1/environments/fuse-heard/events`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    const began = performance.now();
    void test.call('DELETE', '/v1/environments/fuse-heard');
    expect(await response.text()).toMatch(/"destroying".*"destroyed"/s);
    expect(performance.now() - began).toBeLessThan(4_000); // by NOTIFY, not by looking again
  });

  it('admit together no more than fits, and destroy once what both are asked to', async () => {
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        (index % 2 === 0 ? test.call : callSecond)('POST', '/v1/environments', { task_id: `many-${index}` }),
      ),
    );
    const made = answers.filter(({ status }) => status === 201);
    expect(made.length).toBe(8);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201, 503]));
    expect(test.host.vms.size).toBe(8);
    const destroyed = await Promise.all(
      made.flatMap(({ body }) => [test.call, callSecond].map((call) => call('DELETE', `/v1/environments/${body.id}`))),
    );
    expect(destroyed.every(({ status }: Answer) => status === 204 || status === 404)).toBe(true);
    expect(test.host.vms.size).toBe(0);
    expect((await test.call('GET', '/v1/hosts/host-1')).body.allocated.vm_count).toBe(0);
  });

  it('go on when one ends: environments live, a start that it drove is undone', async () => {
    const dying = await test.another({ shutdownTimeoutMs: 100 });
    const callDying = callerOf(() => dying.url);
    const { body: lives } = await callDying('POST', '/v1/environments', { task_id: 'lives' });
    test.host.before = async ({ method }, response) => {
      if (method === 'PUT') await new Promise((resolve) => response.once('close', resolve));
    };
    const cut = callDying('POST', '/v1/environments', { task_id: 'cut' }).catch((error: unknown) => error);
    await expect.poll(async () => (await test.call('GET', '/v1/environments/fuse-cut')).status).toBe(200);
    await dying[Symbol.asyncDispose]();
    test.host.before = () => {};
    await cut;
    await expect
      .poll(async () => (await test.call('GET', '/v1/environments/fuse-cut')).status, { timeout: 5_000 })
      .toBe(404);
    expect((await test.call('GET', `/v1/environments/${lives.id}`)).body).toMatchObject({ state: 'running' });
    expect(test.host.vms.size).toBe(1);
    await test.call('DELETE', `/v1/environments/${lives.id}`);
  });
});
