/** Pause and resume, on real VMs: nothing is lost, nothing is held meanwhile. */
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clearAway } from './support/clear-away.ts';
import { Guest } from './support/life.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up({ FUSE_HOST_CPUS: '16', FUSE_HOST_RAM_MB: '1024' });
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);
afterEach(() => clearAway(stack), 120_000);

const spec = { cpus: 1, ram_mb: 256, storage_gb: 1 };
const start = async (task_id: string, more: object = {}) =>
  new Guest(stack.client, (await stack.client.environments.create({ task_id, spec, ...more })).id);
const { pause, resume } = {
  pause: (guest: Guest) => stack.client.environments.pause(guest.id),
  resume: (guest: Guest) => stack.client.environments.resume(guest.id),
};
const stateOf = async (guest: Guest) => (await stack.client.environments.get(guest.id)).state;

describe('a paused environment', { timeout: 300_000 }, () => {
  it('holds no VMM, keeps its id, and goes on where it was', async () => {
    const source = await start('rests');
    await source.beginLife();
    const before = await source.look();
    const paused = await pause(source);
    expect(paused).toMatchObject({ id: source.id, state: 'paused', paused_at: expect.any(String) });
    expect(await stack.vmmPids()).toEqual([]);
    expect((await stack.client.environments.list({ state: 'paused' })).map(({ id }) => id)).toEqual([source.id]);
    const again = await pause(source);
    expect(again.state).toBe('paused');

    const resumed = await resume(source);
    expect(resumed).toMatchObject({ id: source.id, state: 'running' });
    expect(resumed.paused_at).toBeUndefined();
    const after = await source.expectGoesOnFrom(before);
    expect(await source.clockErrorMs()).toBeLessThan(3_000);
    expect((await resume(source)).state).toBe('running');
    // While it ran on, its random numbers were made new.
    await pause(source);
    const idBefore = await resume(source).then(() => source.identity());
    await pause(source);
    const idAfter = await resume(source).then(() => source.identity());
    expect(idAfter.urandom).not.toBe(idBefore.urandom);
    expect(idAfter.uuid).not.toBe(idBefore.uuid);
    await source.expectGoesOnFrom(after);
  });

  it('gives its memory and CPU to others, and waits for room when it wants them back', async () => {
    const [a, b, c, d] = await Promise.all(['a', 'b', 'c', 'd'].map((task) => start(`room-${task}`)));
    if (a === undefined || b === undefined || c === undefined || d === undefined) throw new Error('there are four');
    await a.keepInMemory('of a');
    await expect(start('room-e')).rejects.toMatchObject({ code: 'unavailable' });
    await pause(a);
    const e = await start('room-e');
    await expect(resume(a)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await stateOf(a)).toBe('paused');
    await stack.client.environments.destroy(e.id);
    await resume(a);
    expect(await a.sh('cat /dev/shm/kept')).toBe('of a');
  });

  it('loses nothing over 20 cycles of write, pause, resume, and answers at once each time', async () => {
    const source = await start('cycles');
    await source.beginLife();
    const before = await source.look();
    for (let i = 0; i < 20; i++) {
      await source.sh(`echo ${i} > /workspace/file-${i}; echo ${i} > /dev/shm/file-${i}`);
      await pause(source);
      await resume(source);
      const expected = Array.from({ length: i + 1 }, (_, n) => `${n}\n`).join('');
      const cat = (folder: string) => `for n in $(seq 0 ${i}); do cat ${folder}/file-$n; done`;
      expect(await source.sh(`${cat('/workspace')}; ${cat('/dev/shm')}`)).toBe(expected + expected);
    }
    await source.expectGoesOnFrom(before);
  });

  it('can be snapshotted before, and its snapshots start while it rests', async () => {
    const source = await start('rests-too');
    await source.beginLife();
    const before = await source.look();
    const snapshot = await stack.client.snapshots.create(source.id);
    await pause(source);
    const copy = new Guest(
      stack.client,
      (await stack.client.environments.create({ task_id: 'copy', seed_snapshot_id: snapshot.id })).id,
    );
    await copy.expectGoesOnFrom(before);
    await pause(copy);
    await resume(copy);
    const { nonce } = await copy.look();
    expect(nonce).toBe(before.nonce);
    await resume(source);
    const ofCopy = await stack.client.environments.fork(copy.id);
    expect((await new Guest(stack.client, ofCopy.id).look()).nonce).toBe(before.nonce);
    await source.expectGoesOnFrom(before);
  });

  it('refuses what needs it running, and says how to go on', async () => {
    const source = await start('refuses');
    await pause(source);
    await expect(source.sh('true')).rejects.toMatchObject({
      code: 'conflict',
      reason: expect.stringContaining('paused'),
    });
    await expect(stack.client.snapshots.create(source.id)).rejects.toMatchObject({ code: 'conflict' });
    await expect(stack.client.environments.fork(source.id)).rejects.toMatchObject({ code: 'conflict' });
    expect(await stateOf(source)).toBe('paused');
  });

  it('is destroyed like any other', async () => {
    const source = await start('ends');
    await pause(source);
    await stack.client.environments.destroy(source.id);
    await expect(stack.client.environments.get(source.id)).rejects.toMatchObject({ code: 'not_found' });
    const again = await start('ends');
    expect(await again.sh('ls /dev/shm')).toBe('');
  });

  it('outlives a restart and a crash of the service', async () => {
    const source = await start('outlives');
    await source.beginLife();
    let last = await source.look();
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      await pause(source);
      await stack.end(signal);
      await stack.start();
      expect(await stateOf(source)).toBe('paused');
      expect(await stack.vmmPids()).toEqual([]);
      await resume(source);
      last = await source.expectGoesOnFrom(last);
    }
  });
});

describe('resuming', { timeout: 300_000 }, () => {
  it('ten times at once is done once, and all ten succeed', async () => {
    const source = await start('ten');
    await source.beginLife();
    const before = await source.look();
    await pause(source);
    const answers = await Promise.all(Array.from({ length: 10 }, () => resume(source)));
    expect(answers.map(({ state }) => state)).toEqual(Array(10).fill('running'));
    expect(await stack.vmmPids()).toHaveLength(1);
    await source.expectGoesOnFrom(before);
  });

  it('is done by an exec where that is asked for, once for many of them', async () => {
    const source = await start('by-exec', { auto_resume: true });
    expect((await stack.client.environments.get(source.id)).auto_resume).toBe(true);
    await source.beginLife();
    const before = await source.look();
    await pause(source);
    const answers = await Promise.all(Array.from({ length: 5 }, (_, i) => source.sh(`echo ${i}`)));
    expect(answers).toEqual(['0\n', '1\n', '2\n', '3\n', '4\n']);
    expect(await stateOf(source)).toBe('running');
    expect(await stack.vmmPids()).toHaveLength(1);
    await source.expectGoesOnFrom(before);
  });
});

describe('an idle environment', { timeout: 300_000 }, () => {
  it('is paused, not destroyed, where that is asked for, and is there again on the next exec', async () => {
    const source = await start('idle', {
      spec: { ...spec, idle_timeout_seconds: 60 },
      idle_action: 'pause',
      auto_resume: true,
    });
    await source.beginLife();
    const before = await source.look();
    expect(await stateOf(source)).toBe('running');
    await delay(30_000);
    expect(await stateOf(source)).toBe('running');
    await expect.poll(() => stateOf(source), { timeout: 180_000, interval: 500 }).toBe('paused');
    await expect.poll(() => stack.vmmPids(), { timeout: 10_000 }).toEqual([]);
    await source.expectGoesOnFrom(before);
  });
});
