/** Quotas under concurrency over two replicas, and whatever dies: never over, never under. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { defaultRunConfig } from '../runs/run-config.ts';
import { create, runToEnd, until, untilEmpty, untilEnded } from '../runs/run-testing.ts';
import { type Answer, callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { inTenant, overQuota, tenantWith, usedBy } from './quota-testing.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/runs/crashing-orchestrator.js', import.meta.url));
const capacity = { cpus: 400, ram_mb: 400_000, storage_gb: 1_000, free_storage_gb: 1_000, vm_count: 200 };

describe('quotas', () => {
  let test: TestOrchestrator;
  let callSecond: TestOrchestrator['call'];
  const children: ChildProcess[] = [];
  const runs = { ...defaultRunConfig, leaseMs: 900 };
  beforeAll(async () => {
    test = await startTestOrchestrator('postgres', { host: { capacity }, config: { runs, takeoverMs: 600 } });
    const second = await test.another();
    callSecond = callerOf(() => second.url);
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    test.host.after = () => {};
    await untilEmpty(test);
  });

  const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status);
  const count = (answers: readonly Answer[], status: number) =>
    statuses(answers).filter((one) => one === status).length;

  it('admit exactly as many as there may be, whoever asks whom, again and again', async () => {
    const { id, call } = await tenantWith(test.call, { environments: 7, cpus: 12 });
    const calls = [call, inTenant(callSecond, id)];
    for (let round = 1; round <= 2; round += 1) {
      // Two or one cpus each: the order decides how many fit, the sums say that not one more would have.
      const answers = await Promise.all(
        Array.from({ length: 40 }, (_, at) =>
          (calls[at % 2] ?? call)('POST', '/v1/environments', {
            task_id: `race-${round}-${at}`,
            spec: { cpus: 1 + (at % 2) },
            wait: false,
          }),
        ),
      );
      expect(new Set(statuses(answers))).toEqual(new Set([202, 429]));
      const used = await usedBy(call);
      expect(used.environments).toBe(count(answers, 202));
      expect(used.environments).toBeLessThanOrEqual(7);
      expect(used.cpus).toBeLessThanOrEqual(12);
      expect(used.environments === 7 || used.cpus >= 11, JSON.stringify(used)).toBe(true);
      const made = answers.filter(({ status }) => status === 202).map(({ body }) => body.id as string);
      await Promise.all(
        made.flatMap((environment) => calls.map((each) => each('DELETE', `/v1/environments/${environment}`))),
      );
      await until(
        () => usedBy(call),
        (now) => now.environments === 0 && now.cpus === 0 && now.storage_gb === 0,
      );
    }
  }, 120_000);

  it('of creates in a minute let exactly as many through', async () => {
    const { id, call } = await tenantWith(test.call, { creates_per_minute: 6 });
    const calls = [call, inTenant(callSecond, id)];
    const answers = await Promise.all(
      Array.from({ length: 24 }, (_, at) => (calls[at % 2] ?? call)('POST', '/v1/runs', { shell: 'true' })),
    );
    expect([count(answers, 202), count(answers, 429)]).toEqual([6, 18]);
    for (const { status, body } of answers) if (status === 202) await untilEnded(call, body.id);
  });

  it('of output bytes are never over, though many save at once', async () => {
    const { id, call } = await tenantWith(test.call, { output_bytes: 2_500 });
    const calls = [call, inTenant(callSecond, id)];
    const uploads = await Promise.all(
      Array.from({ length: 10 }, (_, at) => (calls[at % 2] ?? call)('POST', '/v1/files', 'x'.repeat(400))),
    );
    expect(count(uploads, 201)).toBe(6);
    const body = { shell: 'head -c 100 /dev/zero > a', outputs: ['a'] };
    const saved = await Promise.all(Array.from({ length: 6 }, (_, at) => runToEnd(calls[at % 2] ?? call, body)));
    const kept = saved.flatMap(({ outputs }) => outputs).reduce((sum, { size_bytes }) => sum + size_bytes, 0);
    expect((await usedBy(call)).output_bytes).toBe(6 * 400 + kept);
    expect(kept).toBe(100);
    expect(saved.filter(({ skipped_outputs }) => skipped_outputs?.[0]?.reason === 'quota_exceeded')).toHaveLength(5);
  });

  /** Another process, which stands still at that point of a run. */
  async function another(at: string): Promise<{ url: string; child: ChildProcess; stopped: () => Promise<void> }> {
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify({ config: test.config, at })], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const lines = createInterface({ input: child.stdout as NonNullable<typeof child.stdout> }); // it is a pipe
    const next = lines[Symbol.asyncIterator]();
    const url: string = (await next.next()).value;
    const stopped = async () => expect((await next.next()).value).toBe('stopped');
    return { url, child, stopped };
  }
  const kill = async (child: ChildProcess) => {
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  };
  const untilGivenBack = (call: TestOrchestrator['call']) =>
    until(
      () => usedBy(call),
      ({ environments }) => environments === 0,
      30_000,
    );
  const isFree = async (call: TestOrchestrator['call']) => {
    const made = await call('POST', '/v1/environments', { task_id: 'one-more' });
    expect(made.status, JSON.stringify(made.body)).toBe(201);
    await call('DELETE', `/v1/environments/${made.body.id}`);
  };

  it('are given back by a start whose process is killed while its host makes the VM', async () => {
    const { id: tenant, call } = await tenantWith(test.call, { environments: 1 });
    const { url, child } = await another('never');
    const making = new Promise<void>((resolve) => {
      test.host.after = async ({ method, path }, response) => {
        if (method !== 'PUT' || !/^\/v1\/vms\/[^/]+$/.test(path)) return;
        resolve();
        await new Promise((closed) => response.once('close', closed));
        throw new Error('its caller is gone');
      };
    });
    const callChild = inTenant(
      callerOf(() => url),
      tenant,
    );
    const answer = callChild('POST', '/v1/environments', { task_id: 'killed' }).catch(() => 'cut');
    await making;
    expect(await call('POST', '/v1/environments', { task_id: 'other' })).toMatchObject(overQuota('environments', 1, 1));
    await kill(child);
    expect(await answer).toBe('cut');
    test.host.after = () => {};
    await untilGivenBack(call);
    await isFree(call);
  }, 60_000);

  it.each(['admitted', 'exec started', 'outputs saved', 'ended'])(
    'are given back once by a run whose driver is killed at "%s"',
    async (at) => {
      const { id: tenant, call } = await tenantWith(test.call, { environments: 1, cpus: 1, output_bytes: 1_000 });
      const { url, child, stopped } = await another(at);
      const callChild = inTenant(
        callerOf(() => url),
        tenant,
      );
      const { id } = await create(callChild, { shell: 'head -c 600 /dev/zero > a', outputs: ['a'] });
      await stopped();
      if (at !== 'ended')
        expect(await call('POST', '/v1/environments', { task_id: 'meanwhile' })).toMatchObject(
          overQuota('environments', 1, 1),
        );
      await kill(child);
      const run = await untilEnded(call, id);
      expect(run).toMatchObject({ state: 'succeeded' });
      const used = await untilGivenBack(call);
      expect(used).toMatchObject({ cpus: 0, ram_mb: 0, storage_gb: 0 });
      expect(used.output_bytes).toBe(run.outputs.reduce((sum, { size_bytes }) => sum + size_bytes, 0));
      expect(used.output_bytes).toBeGreaterThanOrEqual(600);
      await isFree(call);
    },
    60_000,
  );

  it('are in the metrics when they were in the way', async () => {
    const { call } = await tenantWith(test.call, { environments: 0 });
    expect((await call('POST', '/v1/environments', { task_id: 'counted' })).status).toBe(429);
    expect((await test.call('GET', '/metrics')).body).toMatch(
      /^orchestrator_quota_refusals_total\{quota="environments"\} [1-9]/m,
    );
  });
});
