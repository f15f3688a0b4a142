/** Snapshots, on real VMs: what they hold, what can be made of them, what is refused, what they leave behind. */
import { open, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Snapshot } from '@fuse/sdk';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clearAway, killVmmOf, leftOnHost } from './support/clear-away.ts';
import { Guest } from './support/life.ts';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up({ FUSE_HOST_CPUS: '16', FUSE_HOST_RAM_MB: '2048' });
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);
afterEach(() => clearAway(stack), 120_000);

const spec = { cpus: 1, ram_mb: 256, storage_gb: 1 };
const start = async (task_id: string, more: object = {}) => {
  const { id } = await stack.client.environments.create({ task_id, spec, ...more });
  return new Guest(stack.client, id);
};
const startFrom = async (task_id: string, snapshot: Snapshot) => {
  const made = await stack.client.environments.create({ task_id, seed_snapshot_id: snapshot.id });
  expect(made).toMatchObject({ state: 'running', seed_snapshot_id: snapshot.id, spec: { ram_mb: 256 } });
  return new Guest(stack.client, made.id);
};

describe('a snapshot', { timeout: 240_000 }, () => {
  it('holds one instant of everything that runs, and its environment runs on', async () => {
    const source = await start('one-instant');
    await source.beginLife();
    const before = await source.look();
    const snapshot = await stack.client.snapshots.create(source.id, {
      comment: 'as it is now',
      name: 'instant',
      retention_seconds: 3_600,
      metadata: { commit: 'abc' },
    });
    expect(snapshot).toMatchObject({
      state: 'ready',
      vm_id: source.id,
      task_id: 'one-instant',
      comment: 'as it is now',
      name: 'instant',
      include_memory: true,
      mode: 'manual',
      arch: 'amd64',
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
      spec: { ram_mb: 256 },
    });
    for (const measured of [snapshot.pause_ms, snapshot.size_bytes, snapshot.stored_bytes])
      expect(measured).toBeGreaterThan(0);
    expect(Date.parse(snapshot.retention_until ?? '')).toBeGreaterThan(Date.now() + 3_000_000);
    await source.expectGoesOnFrom(before);
    await source.keepInMemory('changed since');

    const copy = await startFrom('copy', snapshot);
    await copy.expectGoesOnFrom(before);
    expect(await source.sh('cat /dev/shm/kept')).toBe('changed since');
    expect(await stack.client.snapshots.get(snapshot.id)).toMatchObject({ state: 'ready' });
  });

  it('is a checkpoint: it starts again after its environment was destroyed, and after its VMM was killed', async () => {
    const source = await start('doomed');
    await source.beginLife();
    const first = await source.look();
    const one = await stack.client.snapshots.create(source.id);
    await source.expectGoesOnFrom(first);
    await stack.client.environments.destroy(source.id);
    expect(await stack.vmmPids()).toEqual([]);
    const second = await startFrom('second', one);
    const after = await second.expectGoesOnFrom(first);

    const two = await stack.client.snapshots.create(second.id);
    await killVmmOf(stack, second.id);
    await expect(second.look()).rejects.toMatchObject({ code: 'vm_lost' });
    const third = await startFrom('third', two);
    await third.expectGoesOnFrom(after);
    // The older one is as good as ever.
    const fourth = await startFrom('fourth', one);
    await fourth.expectGoesOnFrom(first);
  });

  it('stores only what changed, and starts as fast from the end of a long chain', async () => {
    const source = await start('chain');
    await source.beginLife();
    const sizes: { size: number; stored: number }[] = [];
    let last = await stack.client.snapshots.create(source.id);
    for (let i = 0; i < 10; i++) {
      await source.keepInMemory(`link ${i}`);
      const next = await stack.client.snapshots.create(source.id);
      expect(next.parent_snapshot_id).toBe(last.id);
      sizes.push({ size: next.size_bytes ?? 0, stored: next.stored_bytes ?? Number.MAX_SAFE_INTEGER });
      last = next;
    }
    for (const { size, stored } of sizes) expect(stored).toBeLessThan(size / 2);
    const before = await source.look();
    const copy = await startFrom('chain-copy', last);
    expect(await copy.look()).toMatchObject({
      nonce: before.nonce,
      sequence: before.sequence,
      inMemory: 'link 9',
    });
  });

  it('without memory is a disk of a frozen file system, from which a VM boots', async () => {
    const source = await start('disk-only');
    await source.beginLife();
    await source.write('/workspace/kept', 'on disk');
    const before = await source.look();
    const snapshot = await stack.client.snapshots.create(source.id, { include_memory: false });
    expect(snapshot).toMatchObject({ state: 'ready', include_memory: false });
    await source.expectGoesOnFrom(before);
    const copy = await startFrom('disk-copy', snapshot);
    expect(await copy.sh('cat /workspace/kept; ls /dev/shm; pgrep -c python3 || true')).toBe('on disk0\n');
    const check = `import sqlite3
db = sqlite3.connect('/workspace/life.db')
a, b, last = db.execute('select (select count(*) from a), (select count(*) from b), (select max(i) from a)').fetchone()
print(db.execute('pragma integrity_check').fetchone()[0], a == b == last, last >= ${before.rows})`;
    expect(await copy.sh(`python3 -c "${check}"`)).toBe('ok True True\n');
  });

  it('in the object store outlives its host', async () => {
    const source = await start('exported');
    await source.beginLife();
    const before = await source.look();
    const { id } = await stack.client.snapshots.create(source.id, { export: true });
    await expect
      .poll(async () => (await stack.client.snapshots.get(id)).exports?.map((each) => each.status), {
        timeout: 120_000,
        interval: 200,
      })
      .toEqual(['done']);
    const exported = await stack.client.snapshots.get(id);
    expect(exported.exported_bytes).toBeGreaterThan(0);
    expect(exported.exported_bytes).toBeLessThan(exported.size_bytes ?? 0);
    await stack.client.environments.destroy(source.id);
    await stack.end('SIGTERM');
    await rm(join(stack.home, 'host', 'snapshots', id), { recursive: true });
    await stack.start();
    const copy = await startFrom('from-store', exported);
    await copy.expectGoesOnFrom(before);
  });

  it('is kept as long as was asked for, then deleted by itself', async () => {
    const source = await start('retention');
    const brief = await stack.client.snapshots.create(source.id, { retention_seconds: 1 });
    const kept = await stack.client.snapshots.create(source.id);
    await expect
      .poll(async () => (await stack.client.snapshots.list({ vmId: source.id })).map(({ id }) => id), {
        timeout: 120_000,
        interval: 500,
      })
      .toEqual([kept.id]);
    await expect(stack.client.snapshots.get(brief.id)).rejects.toMatchObject({ code: 'not_found' });
    await startFrom('of-kept', kept);
  });
});

describe('restoring in place', { timeout: 240_000 }, () => {
  it('takes an environment back under the same id, and tells who is connected', async () => {
    const source = await start('back');
    await source.beginLife();
    const before = await source.look();
    const snapshot = await stack.client.snapshots.create(source.id);
    const after = await source.expectGoesOnFrom(before);
    await source.keepInMemory('lost again');
    await source.sh('rm -rf /workspace/life.db*');
    const events: { state: string; from: string | undefined }[] = [];
    const watching = (async () => {
      for await (const event of await stack.client.environments.events(source.id)) {
        events.push({ state: event.state, from: event.restored_from });
        if (event.restored_from !== undefined) return;
      }
    })();
    const running = stack.client.environments
      .exec(source.id, { shell: 'touch /dev/shm/began; sleep 300', timeout_ms: 300_000 })
      .catch((error: unknown) => error);
    await source.sh('until [ -e /dev/shm/began ]; do sleep 0.1; done');
    await stack.client.snapshots.restore(snapshot.id);
    expect(await running).toMatchObject({ name: 'FuseApiError' });
    await watching;
    expect(events.at(-1)).toEqual({ state: 'running', from: snapshot.id });
    expect(await stack.client.environments.get(source.id)).toMatchObject({ id: source.id, state: 'running' });
    const restored = await source.expectGoesOnFrom(before);
    expect(restored.nonce).toBe(after.nonce);
    expect((await stack.client.snapshots.get(snapshot.id)).state).toBe('ready');
    expect(await stack.vmmPids()).toHaveLength(1);

    await source.keepInMemory('lost once more');
    await stack.client.snapshots.restore(snapshot.id);
    await source.expectGoesOnFrom(before);
    expect(await source.clockErrorMs()).toBeLessThan(3_000);
  });

  it('is refused when its environment is gone, and changes nothing', async () => {
    const source = await start('gone');
    const snapshot = await stack.client.snapshots.create(source.id);
    await stack.client.environments.destroy(source.id);
    await expect(stack.client.snapshots.restore(snapshot.id)).rejects.toMatchObject({ code: 'not_found' });
    expect((await stack.client.snapshots.get(snapshot.id)).state).toBe('ready');
    await startFrom('gone-copy', snapshot);
  });
});

describe('checkpoints', { timeout: 240_000 }, () => {
  it('are taken by themselves, the last ones kept, and outlive a killed VMM', async () => {
    const source = await start('checked', { checkpoint_interval_seconds: 10, checkpoint_keep: 2 });
    expect(await stack.client.environments.get(source.id)).toMatchObject({
      checkpoint_interval_seconds: 10,
      checkpoint_keep: 2,
    });
    await source.beginLife();
    const before = await source.look();
    const list = () => stack.client.snapshots.list({ vmId: source.id, state: 'ready' });
    const seen = new Set<string>();
    const taken = async () => {
      for (const { id } of await list()) seen.add(id);
      return seen.size;
    };
    await expect.poll(taken, { timeout: 150_000, interval: 500 }).toBeGreaterThanOrEqual(4);
    await expect.poll(async () => (await list()).length, { timeout: 60_000, interval: 200 }).toBe(2);
    await killVmmOf(stack, source.id);
    await expect(source.look()).rejects.toMatchObject({ code: 'vm_lost' });
    const [newest] = await list();
    expect(newest?.mode).toBe('auto');
    const recovered = new Guest(
      stack.client,
      (await stack.client.environments.create({ task_id: 'recovered', seed_snapshot_id: newest?.id })).id,
    );
    const now = await recovered.look();
    expect(now).toMatchObject({ nonce: before.nonce, inMemory: before.inMemory });
    expect(now.rows).toBeGreaterThanOrEqual(before.rows);
  });
});

describe('deleting snapshots', { timeout: 240_000 }, () => {
  it('frees bytes and says how many; what was started from them lives on', async () => {
    const source = await start('delete');
    await source.beginLife();
    const parent = await stack.client.snapshots.create(source.id);
    await source.sh('head -c 20000000 /dev/urandom > /dev/shm/more');
    const child = await stack.client.snapshots.create(source.id);
    const before = await source.look();
    const copy = await startFrom('delete-copy', child);
    await expect(stack.client.snapshots.delete(parent.id)).rejects.toMatchObject({ code: 'conflict' });
    const forced = await stack.client.snapshots.delete(parent.id, { force: true });
    expect(forced.freedStoreBytes).toBe(0);
    expect(forced.freedHostBytes).toBeGreaterThanOrEqual(0);
    await expect(stack.client.snapshots.get(parent.id)).rejects.toMatchObject({ code: 'not_found' });

    const again = await startFrom('delete-again', child);
    expect((await again.look()).nonce).toBe(before.nonce);
    await stack.client.environments.destroy(again.id);
    await stack.client.environments.destroy(source.id);
    await stack.client.environments.destroy(copy.id);
    const last = await stack.client.snapshots.delete(child.id);
    expect(last.freedHostBytes).toBeGreaterThan(20_000_000);
    expect(await leftOnHost(stack)).toEqual({ vms: [], snapshots: [] });
    await expect(stack.client.snapshots.delete(child.id)).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('a damaged snapshot', { timeout: 240_000 }, () => {
  it('is refused, marked, and nothing is started from it', async () => {
    const source = await start('damaged');
    const snapshot = await stack.client.snapshots.create(source.id);
    await stack.client.environments.destroy(source.id);
    const paths = await filesBelow(join(stack.home, 'host', 'snapshots', snapshot.id));
    expect((await Promise.all(paths.map(flipLastByte))).filter(Boolean).length).toBeGreaterThan(0);
    await expect(
      stack.client.environments.create({ task_id: 'of-damaged', seed_snapshot_id: snapshot.id }),
    ).rejects.toMatchObject({ code: 'integrity_error' });
    const marked = await stack.client.snapshots.get(snapshot.id);
    expect([marked.state, marked.last_error]).toEqual(['error', expect.stringMatching(/\w/)]);
    await expect(
      stack.client.environments.create({ task_id: 'of-damaged', seed_snapshot_id: snapshot.id }),
    ).rejects.toMatchObject({ code: 'conflict' });
    expect(await stack.client.environments.list()).toEqual([]);
    expect((await leftOnHost(stack)).vms).toEqual([]);
    expect(await stack.vmmPids()).toEqual([]);
    await stack.client.snapshots.delete(snapshot.id);
  });
});

describe('refusals', { timeout: 240_000 }, () => {
  it('leave nothing behind', async () => {
    const source = await start('refused');
    const snapshot = await stack.client.snapshots.create(source.id);
    const { client } = stack;
    const create = (more: object) => client.environments.create({ task_id: 'never', ...more });
    const before = await leftOnHost(stack);
    const refused: [() => Promise<unknown>, object][] = [
      [() => create({ seed_snapshot_id: 'snap-none' }), { code: 'not_found' }],
      [() => create({ seed_snapshot_id: snapshot.id, spec: { image: 'base' } }), { code: 'invalid_argument' }],
      [() => create({ idle_action: 'sleep' }), { code: 'invalid_argument' }],
      [() => create({ checkpoint_interval_seconds: 3 }), { code: 'invalid_argument' }],
      [() => create({ checkpoint_keep: 0 }), { code: 'invalid_argument' }],
      [() => client.snapshots.create('fuse-none'), { code: 'not_found' }],
      [() => client.snapshots.create(source.id, { retention_seconds: -1 }), { code: 'invalid_argument' }],
      [() => client.snapshots.restore('snap-none'), { code: 'not_found' }],
      [() => client.snapshots.delete('snap-none'), { code: 'not_found' }],
      [() => client.environments.fork('fuse-none'), { code: 'not_found' }],
      [() => client.environments.fork(source.id, { reuse_snapshot_id: 'snap-none' }), { code: 'not_found' }],
      [() => client.environments.forkMany(source.id, { count: 101 }), { code: 'invalid_argument' }],
      [() => client.environments.pause('fuse-none'), { code: 'not_found' }],
      [() => client.environments.resume('fuse-none'), { code: 'not_found' }],
    ];
    for (const [call, error] of refused) await expect(call()).rejects.toMatchObject(error);
    expect(await leftOnHost(stack)).toEqual(before);
    expect((await client.environments.list()).map(({ id }) => id)).toEqual([source.id]);
    expect((await client.snapshots.list()).map(({ id }) => id)).toEqual([snapshot.id]);
    expect(await stack.vmmPids()).toHaveLength(1);
  });

  it('for want of room are so too, for one and for many, and what was there is unharmed', async () => {
    const source = await start('room');
    await source.beginLife();
    const before = await source.look();
    const snapshot = await stack.client.snapshots.create(source.id);
    const { client } = stack;
    // 2048 MB in all, 256 MB of them taken.
    await expect(client.environments.forkMany(source.id, { count: 8 })).rejects.toMatchObject({ code: 'unavailable' });
    await expect(
      client.environments.forkMany(source.id, { count: 8, reuse_snapshot_id: snapshot.id }),
    ).rejects.toMatchObject({ code: 'unavailable' });
    expect((await client.environments.list()).map(({ id }) => id)).toEqual([source.id]);
    expect((await client.snapshots.list()).map(({ id }) => id)).toEqual([snapshot.id]);
    const { environments } = await client.environments.forkMany(source.id, {
      count: 7,
      reuse_snapshot_id: snapshot.id,
    });
    expect(environments).toHaveLength(7);
    await expect(client.environments.fork(source.id)).rejects.toMatchObject({ code: 'unavailable' });
    await expect(
      client.environments.create({ task_id: 'no-room', seed_snapshot_id: snapshot.id }),
    ).rejects.toMatchObject({ code: 'unavailable' });
    expect(await client.environments.list({ taskId: 'no-room' })).toEqual([]);
    expect(await stack.vmmPids()).toHaveLength(8);
    await source.expectGoesOnFrom(before);
  });
});

async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && !entry.name.endsWith('.json'));
  return files.map((entry) => join(entry.parentPath, entry.name));
}

/** Bytes that are linked to a template's are left alone. */
async function flipLastByte(path: string): Promise<boolean> {
  const { size, nlink } = await stat(path);
  if (size === 0 || nlink > 1) return false;
  const file = await open(path, 'r+');
  try {
    const byte = Buffer.alloc(1);
    await file.read(byte, 0, 1, size - 1);
    await file.write(Buffer.from([(byte[0] ?? 0) ^ 0xff]), 0, 1, size - 1);
    return true;
  } finally {
    await file.close();
  }
}
