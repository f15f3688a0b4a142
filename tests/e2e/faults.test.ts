/** Every process killed at the worst moment: the run ends in a truthful state, nothing leaks, no command runs twice. */
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LocalStack, signalVmm } from './support/local-stack.ts';

let stack: LocalStack;
beforeEach(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterEach(() => stack?.[Symbol.asyncDispose](), 60_000);

const until = async (id: string, state: string) => {
  await expect.poll(async () => (await stack.client.runs.get(id)).state, { timeout: 60_000, interval: 20 }).toBe(state);
};

describe('when something dies during a run', { timeout: 180_000 }, () => {
  it('the service: another one takes over, the output has no gap and no repeat, the command ran once', async () => {
    const run = await stack.client.runs.create({
      shell: 'echo started >> count; for i in $(seq 1 60); do echo line $i; sleep 0.1; done; cat count',
      outputs: ['count'],
    });
    await until(run.id, 'running');
    await delay(1_000);
    await stack.end('SIGKILL');
    await delay(1_500);
    await stack.start();
    const ended = (await stack.client.runs.wait(run.id)).run;
    const lines = Array.from({ length: 60 }, (_, i) => `line ${i + 1}\n`).join('');
    expect(ended).toMatchObject({ state: 'succeeded', stdout: `${lines}started\n` });
    expect(new TextDecoder().decode(await stack.client.runs.outputs.download(run.id, 'count'))).toBe('started\n');
  });

  it.each([10, 40, 80, 120, 180, 260, 350])('the service, %i ms after the run was admitted', async (ms) => {
    const run = await stack.client.runs.create({ shell: 'echo x >> /workspace/count; wc -l < /workspace/count' });
    await delay(ms);
    await stack.end('SIGKILL');
    await stack.start();
    const ended = (await stack.client.runs.wait(run.id)).run;
    if (ended.state === 'succeeded') expect(ended.stdout).toBe('1\n');
    else expect(ended.error?.code).toMatch(/^(start_failed|vm_lost)$/);
    await expect.poll(() => stack.vmmPids(), { timeout: 30_000 }).toEqual([]);
  });

  it('the VMM: failed, vm_lost, within seconds; what it printed is kept', async () => {
    const run = await stack.client.runs.create({ shell: 'echo printed; sleep 300' });
    await until(run.id, 'running');
    await delay(700);
    const [pid] = await stack.vmmPids();
    signalVmm(pid, 'SIGKILL');
    const killed = performance.now();
    const ended = (await stack.client.runs.wait(run.id)).run;
    expect(performance.now() - killed).toBeLessThan(15_000);
    expect(ended).toMatchObject({ state: 'failed', error: { code: 'vm_lost' } });
    expect(ended.exit_code).toBeUndefined();
    const log = await stack.client.runs.outputs.download(run.id, '.fuse/stdout.log');
    expect(new TextDecoder().decode(log)).toBe('printed\n');
    await expect.poll(() => stack.client.environments.list(), { timeout: 10_000 }).toEqual([]); // it goes behind the run's end
  });

  it('the VMM hangs and the run is cancelled: cancelled, within seconds, and the VMM is gone', async () => {
    const run = await stack.client.runs.create({ shell: 'echo printed; sleep 300' });
    await until(run.id, 'running');
    await delay(700);
    const [pid] = await stack.vmmPids();
    signalVmm(pid, 'SIGSTOP');
    await stack.client.runs.cancel(run.id);
    expect((await stack.client.runs.wait(run.id)).run).toMatchObject({ state: 'cancelled' });
    await expect.poll(() => stack.vmmPids(), { timeout: 10_000 }).toEqual([]);
  });

  it('the guest kernel and its agent: failed, vm_lost', async () => {
    const run = await stack.client.runs.create({
      shell: 'echo printed; sleep 0.5; echo c > /proc/sysrq-trigger; sleep 300',
    });
    expect((await stack.client.runs.wait(run.id)).run).toMatchObject({ state: 'failed', error: { code: 'vm_lost' } });
    await expect.poll(() => stack.vmmPids(), { timeout: 10_000 }).toEqual([]);
  });

  it('the VMM during an exec: the caller has an error within 5 s, and the environment says failed', async () => {
    const environment = await stack.client.environments.create({ task_id: 'dies' });
    const exec = stack.client.environments
      .exec(environment.id, { shell: 'sleep 300', timeout_ms: 60_000 })
      .catch((error: unknown) => error);
    await delay(500);
    const [pid] = await stack.vmmPids();
    signalVmm(pid, 'SIGKILL');
    const killed = performance.now();
    expect(await exec).toMatchObject({ code: 'vm_lost' });
    expect(performance.now() - killed).toBeLessThan(5_000);
    await stack.client.environments
      .destroy(environment.id)
      .catch((error: { status?: number }) => expect(error.status).toBe(404));
    expect(await stack.client.environments.list()).toEqual([]);
  });

  it('a restart of the service costs no running environment', async () => {
    const environment = await stack.client.environments.create({ task_id: 'outlives' });
    await stack.client.environments.exec(environment.id, { shell: 'echo kept > /tmp/kept; (sleep 600 &)' });
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      await stack.end(signal);
      await stack.start();
      expect(
        await stack.client.environments.exec(environment.id, { shell: 'cat /tmp/kept; pgrep -c sleep' }),
      ).toMatchObject({ stdout: 'kept\n1\n' });
    }
    await stack.client.environments.destroy(environment.id);
  });
});
