/** Service and VMM killed in the middle of a snapshot, a fork, a pause, a resume, a restore: afterwards every state is true, and nothing is left over. */
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { clearAway } from './support/clear-away.ts';
import { Guest, type Life } from './support/life.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
let source: Guest;
let before: Life;
beforeAll(async () => {
  stack = await LocalStack.up({ FUSE_HOST_CPUS: '16', FUSE_HOST_RAM_MB: '2048', ORCH_TAKEOVER_SECONDS: '6' });
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);
beforeEach(async () => {
  const { id } = await stack.client.environments.create({
    task_id: 'source',
    spec: { cpus: 1, ram_mb: 256, storage_gb: 1 },
  });
  source = new Guest(stack.client, id);
  await source.beginLife();
  before = await source.look();
}, 180_000);
afterEach(() => clearAway(stack), 120_000);

const SETTLED = { timeout: 90_000, interval: 200 };
/** Every other moment is a test of the host agent's own (apps/host-agent/src/vms/killed.vm.test.ts): here each costs a lease. */
const serviceDelays = [100];
const delays = [20, 200];

/** The service dies `ms` after the call was sent, and comes back; the same guest by the new client. */
async function crashDuring(call: Promise<unknown>, ms: number): Promise<void> {
  const outcome = call.catch((error: unknown) => error);
  await delay(ms);
  await stack.end('SIGKILL');
  await outcome;
  await stack.start();
  source = new Guest(stack.client, source.id);
}

const stateOf = async (id: string) =>
  await stack.client.environments.get(id).then(
    ({ state }) => state as string,
    (error: { code?: string }) => error.code ?? String(error),
  );

/** No operation is under way any more, in the truth or on the host. */
async function settled(): Promise<void> {
  const passing = ['provisioning', 'pausing', 'resuming', 'destroying'];
  await expect
    .poll(async () => (await stack.client.environments.list()).filter(({ state }) => passing.includes(state)), SETTLED)
    .toEqual([]);
  await expect
    .poll(
      async () =>
        (await stack.client.snapshots.list()).filter(({ state }) =>
          ['creating', 'restoring', 'deleting'].includes(state),
        ),
      SETTLED,
    )
    .toEqual([]);
}

/** Every running environment has its VMM and answers; there is no VMM beside them. */
async function truthful(): Promise<void> {
  await settled();
  const running = (await stack.client.environments.list()).filter(({ state }) => state === 'running');
  for (const { id } of running) expect((await new Guest(stack.client, id).look()).nonce).toBe(before.nonce);
  await expect.poll(async () => (await stack.vmmPids()).length, SETTLED).toBe(running.length);
}

describe('the service dies', { timeout: 300_000 }, () => {
  it.each(serviceDelays)(
    '%i ms into a snapshot: the environment runs on, the snapshot is whole or not there',
    async (ms) => {
      await crashDuring(stack.client.snapshots.create(source.id, { comment: 'crash' }), ms);
      await truthful();
      await source.look();
      for (const snapshot of await stack.client.snapshots.list()) {
        expect(['ready', 'error']).toContain(snapshot.state);
        if (snapshot.state === 'error') continue;
        const copy = await stack.client.environments.create({ task_id: 'copy', seed_snapshot_id: snapshot.id });
        await new Guest(stack.client, copy.id).expectGoesOnFrom(before);
      }
      // And the next one is as good as ever.
      expect((await stack.client.snapshots.create(source.id)).state).toBe('ready');
    },
  );

  it.each(serviceDelays)('%i ms into a fork: the source runs on, forks are whole or not there', async (ms) => {
    await crashDuring(stack.client.environments.forkMany(source.id, { count: 2 }), ms);
    await truthful();
    expect([1, 3]).toContain((await stack.client.environments.list()).length);
    await source.look();
    expect((await stack.client.environments.fork(source.id)).state).toBe('running');
  });

  it.each(serviceDelays)('%i ms into a pause: it is paused or runs, and nothing is lost', async (ms) => {
    await crashDuring(stack.client.environments.pause(source.id), ms);
    await settled();
    expect(['paused', 'running']).toContain(await stateOf(source.id));
    if ((await stateOf(source.id)) === 'paused') expect(await stack.vmmPids()).toEqual([]);
    await stack.client.environments.resume(source.id);
    await source.expectGoesOnFrom(before);
    await truthful();
  });

  it.each(serviceDelays)('%i ms into a resume: it is paused or runs, and nothing is lost', async (ms) => {
    await stack.client.environments.pause(source.id);
    await crashDuring(stack.client.environments.resume(source.id), ms);
    await settled();
    expect(['paused', 'running']).toContain(await stateOf(source.id));
    await stack.client.environments.resume(source.id);
    await source.expectGoesOnFrom(before);
    await truthful();
  });

  it.each(delays)('%i ms into a restore: it is as before, or as restored; the snapshot is good', async (ms) => {
    const snapshot = await stack.client.snapshots.create(source.id);
    await source.keepInMemory('later');
    await crashDuring(stack.client.snapshots.restore(snapshot.id), ms);
    await settled();
    expect(await stateOf(source.id)).toBe('running');
    const { inMemory, nonce } = await source.look();
    expect(nonce).toBe(before.nonce);
    expect(['later', before.inMemory]).toContain(inMemory);
    expect((await stack.client.snapshots.get(snapshot.id)).state).toBe('ready');
    const copy = await stack.client.environments.create({ task_id: 'copy', seed_snapshot_id: snapshot.id });
    await new Guest(stack.client, copy.id).expectGoesOnFrom(before);
  });
});

describe('the VMM dies', { timeout: 300_000 }, () => {
  const killDuring = async (call: Promise<unknown>, ms: number) => {
    const [pid] = await stack.vmmPids();
    const outcome = call.then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    );
    await delay(ms);
    try {
      process.kill(pid ?? Number.NaN, 'SIGKILL');
    } catch (error) {
      // The call had ended it already.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
    return await outcome;
  };
  const gone = async () => {
    await expect
      .poll(() => stateOf(source.id), SETTLED)
      .toSatisfy((state: string) => ['failed', 'not_found', 'paused'].includes(state));
    return await stateOf(source.id);
  };

  it.each(delays)('%i ms into a snapshot: the environment failed, what is said to be ready is', async (ms) => {
    const outcome = await killDuring(stack.client.snapshots.create(source.id), ms);
    expect(['failed', 'not_found']).toContain(await gone());
    await settled();
    const ready = await stack.client.snapshots.list({ state: 'ready' });
    if ('value' in outcome) expect(ready).toHaveLength(1);
    for (const snapshot of ready) {
      const copy = await stack.client.environments.create({ task_id: 'copy', seed_snapshot_id: snapshot.id });
      await new Guest(stack.client, copy.id).expectGoesOnFrom(before);
    }
    await truthful();
  });

  it.each(delays)('%i ms into a pause: it is paused with everything, or failed', async (ms) => {
    await killDuring(stack.client.environments.pause(source.id), ms);
    if ((await gone()) === 'paused') {
      await stack.client.environments.resume(source.id);
      await source.expectGoesOnFrom(before);
    }
    await truthful();
  });

  it.each(delays)('%i ms into a fork: forks are whole or not there', async (ms) => {
    await killDuring(stack.client.environments.fork(source.id), ms);
    expect(['failed', 'not_found']).toContain(await gone());
    await truthful();
  });
});
