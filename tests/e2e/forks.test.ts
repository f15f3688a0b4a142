/** Forks, on real VMs: each goes on from where its source was, as a machine of its own, and the source is unharmed. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clearAway } from './support/clear-away.ts';
import { Guest } from './support/life.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up({ FUSE_HOST_CPUS: '32', FUSE_HOST_RAM_MB: '8192' });
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);
afterEach(() => clearAway(stack), 180_000);

const spec = { cpus: 1, ram_mb: 256, storage_gb: 1 };
const start = async (task_id: string, more: object = {}) =>
  new Guest(stack.client, (await stack.client.environments.create({ task_id, spec, ...more })).id);
const guestOf = ({ id }: { id: string }) => new Guest(stack.client, id);

describe('a fork', { timeout: 300_000 }, () => {
  it('goes on from where its source is, and so does a fork of it, while all of them live on', async () => {
    const source = await start('source', { env: { WHO: 'me' } });
    await source.beginLife();
    const before = await source.look();
    const made = await stack.client.environments.fork(source.id, { comment: 'a try' });
    expect(made).toMatchObject({ state: 'running', spec });
    expect(made.id).not.toBe(source.id);
    expect(made.task_id).not.toBe('source');
    const [seed] = await stack.client.snapshots.list({ vmId: source.id });
    expect(seed).toMatchObject({ id: made.seed_snapshot_id, comment: 'a try', mode: 'auto' });

    const fork = guestOf(made);
    await fork.expectGoesOnFrom(before);
    expect(await fork.sh('echo $WHO')).toBe('me\n');
    await fork.keepInMemory('from the fork');
    await fork.write('/workspace/of-the-fork', 'x');
    const second = guestOf(await stack.client.environments.fork(fork.id));
    const third = guestOf(await stack.client.environments.fork(second.id));
    for (const each of [third, second]) {
      expect((await each.look()).nonce).toBe(before.nonce);
      expect(await each.sh('cat /dev/shm/kept /workspace/of-the-fork')).toBe('from the forkx');
    }
    await third.sh('rm /workspace/of-the-fork; rm /dev/shm/kept');
    expect(await fork.sh('cat /dev/shm/kept /workspace/of-the-fork')).toBe('from the forkx');
    await source.expectGoesOnFrom(before);
    expect(await source.sh('ls /workspace/of-the-fork 2>&1 || true')).toContain('No such file');
  });

  it('of a snapshot that is reused goes on from then', async () => {
    const source = await start('reused');
    await source.beginLife();
    const before = await source.look();
    const snapshot = await stack.client.snapshots.create(source.id);
    await source.expectGoesOnFrom(before);
    await source.keepInMemory('later');
    for (let i = 0; i < 2; i++)
      await guestOf(
        await stack.client.environments.fork(source.id, { reuse_snapshot_id: snapshot.id }),
      ).expectGoesOnFrom(before);
    expect(await stack.client.snapshots.list({ vmId: source.id })).toHaveLength(1);
    const stranger = await start('stranger');
    await expect(stack.client.environments.fork(stranger.id, { reuse_snapshot_id: snapshot.id })).rejects.toMatchObject(
      { code: 'not_found' },
    );
  });

  it('lives on when its source is destroyed at once', async () => {
    const source = await start('early-gone');
    await source.beginLife();
    const before = await source.look();
    const fork = guestOf(await stack.client.environments.fork(source.id));
    await stack.client.environments.destroy(source.id);
    await fork.expectGoesOnFrom(before);
  });

  it('runs the hooks of its image before it is handed over, and can be told from its source by its generation', async () => {
    const source = await start('hooked');
    const hook =
      '#!/bin/sh\necho "$FUSE_REASON $FUSE_HOSTNAME $FUSE_GENERATION $(cat /run/fuse/generation)" >> /tmp/hooked\n';
    await source.sh('mkdir -p /etc/fuse/restored.d');
    await source.write('/etc/fuse/restored.d/10-note', hook);
    await source.sh('chmod 755 /etc/fuse/restored.d/10-note');
    const generation = Number(await source.sh('cat /run/fuse/generation'));
    const fork = guestOf(await stack.client.environments.fork(source.id));
    const now = Number(await fork.sh('cat /run/fuse/generation'));
    expect(now).toBeGreaterThan(generation);
    const hostname = (await fork.sh('hostname')).trim();
    expect(await fork.sh('cat /tmp/hooked')).toBe(`fork ${hostname} ${now} ${now}\n`);
    expect(await source.sh('ls /tmp/hooked 2>&1 || true')).toContain('No such file');
  });
});

describe('20 forks at once', { timeout: 300_000 }, () => {
  it('are 20 machines: nothing that should be unique is shared, each writes for itself, the clocks are right', async () => {
    const source = await start('many');
    await source.keepInMemory('from the source');
    await source.sh('setsid sleep 100000 > /dev/null 2>&1 < /dev/null &');
    const own = await source.identity();
    const { snapshot_id, environments } = await stack.client.environments.forkMany(source.id, { count: 20 });
    expect(environments).toHaveLength(20);
    expect(new Set(environments.map(({ id }) => id)).size).toBe(20);
    expect(new Set(environments.map(({ seed_snapshot_id }) => seed_snapshot_id))).toEqual(new Set([snapshot_id]));
    expect((await stack.client.environments.list()).filter(({ state }) => state === 'running')).toHaveLength(21);

    const guests = environments.map(guestOf);
    const identities = [own, ...(await Promise.all(guests.map((guest) => guest.identity())))];
    for (const [name, value] of Object.entries(own)) {
      expect(value, name).toMatch(/\w/);
      expect(new Set(identities.map((each) => each[name])).size, name).toBe(21);
    }
    await Promise.all(guests.map((guest, i) => guest.sh(`echo ${i} > /workspace/own; echo ${i} > /dev/shm/own; sync`)));
    const probe = 'cat /workspace/own /dev/shm/own /dev/shm/kept; pgrep -c sleep';
    expect(await Promise.all(guests.map((guest) => guest.sh(probe)))).toEqual(
      guests.map((_, i) => `${i}\n${i}\nfrom the source1\n`),
    );
    for (const guest of guests) expect(await guest.clockErrorMs()).toBeLessThan(3_000);
    expect(await source.sh('ls /workspace/own 2>&1 || true; pgrep -c sleep')).toMatch(/No such file.*\n1\n$/);
  });

  it('under write load leave every file system and database whole', async () => {
    const source = await start('load');
    await source.beginLife();
    await source.sh(
      'mkdir /workspace/load; (cd /workspace/load; setsid sh -c "while :; do for i in 1 2 3 4 5 6 7 8; do head -c 60000 /dev/urandom > f\\$i; done; sync; done" > /dev/null 2>&1 < /dev/null &)',
    );
    for (let round = 0; round < 2; round++) {
      const before = await source.look();
      const { environments } = await stack.client.environments.forkMany(source.id, { count: 3 });
      for (const each of environments) {
        const fork = guestOf(each);
        expect(await fork.look()).toMatchObject({ nonce: before.nonce, database: 'whole' });
        expect(await fork.sh('dmesg | grep -ci "ext4.*error" || true')).toBe('0\n');
        await stack.client.environments.destroy(fork.id);
      }
      await source.expectGoesOnFrom(before);
    }
  });
});
