import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { HostSnapshot } from '@fuse/host-protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { flipByte } from '../vms/test-damage.ts';
import { TestHost } from '../vms/test-host.ts';
import { MAX_LAYERS } from './store-difference.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterEach(async () => {
  await host.agent.destroyAllVms();
  const { snapshots } = await host.call<{ snapshots: HostSnapshot[] }>('GET', '/v1/snapshots');
  await Promise.all(snapshots.map(({ id }) => host.deleteSnapshot(id)));
  expect(await readdir(host.snapshotsDirectory)).toEqual([]);
});
afterAll(() => host[Symbol.asyncDispose]());

const print = async (vm: string, script: string) => (await host.shell(vm, script)).stdout.toString();
const MIB = 1_048_576;

/** Those that are there: once it is durable and nobody holds it, those that count. */
async function layersOf(id: string): Promise<string[]> {
  const directory = join(host.snapshotsDirectory, id);
  const record = JSON.parse(await readFile(join(directory, 'snapshot.json'), 'utf8')) as { files: { name: string }[] };
  const counting = record.files.map(({ name }) => name).filter((name) => name.startsWith('layer-'));
  await vi.waitFor(async () => {
    const there = (await readdir(directory)).filter((name) => name.startsWith('layer-'));
    expect(there.sort()).toEqual([...counting].sort());
  }, 10_000);
  return counting;
}

const LOAD = `
import os, sqlite3
db = sqlite3.connect('/workspace/load.db')
db.execute('pragma journal_mode=wal')
db.execute('create table if not exists t (n integer primary key, square integer)')
n = 0
while True:
    n += 1
    with db:
        db.execute('insert into t values (?, ?)', (n, n * n))
    with open('/dev/shm/count.new', 'w') as file:
        file.write(f'{n}\\n')
    os.replace('/dev/shm/count.new', '/dev/shm/count')
`;
const READ_COUNT = 'until test -e /dev/shm/count; do sleep 0.01; done; cat /dev/shm/count';
const CHECK_DATABASE = `python3 -c "
import sqlite3
db = sqlite3.connect('/workspace/load.db')
assert db.execute('pragma integrity_check').fetchone() == ('ok',)
count, top, wrong = db.execute('select count(*), max(n), sum(square != n * n) from t').fetchone()
assert count == top and wrong == 0
print(count)"`;

describe('snapshots of one VM', () => {
  it('store what changed in between, and each is whole without the others', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'head -c 20000000 /dev/urandom > /dev/shm/large; sha256sum /dev/shm/large > /dev/shm/sum');
    const ids: string[] = [];
    const stored: number[] = [];
    for (let round = 1; round <= 4; round++) {
      await host.shell(vm.id, `echo ${round} >> /dev/shm/rounds`);
      const { id, stored_bytes = 0, parent_id } = await host.snapshot(vm.id, { wait: 'durable' });
      expect(parent_id).toBe(ids.at(-1));
      ids.push(id);
      stored.push(stored_bytes);
      expect(await layersOf(id)).toHaveLength(round);
    }
    for (const each of stored.slice(1)) expect((stored[0] ?? 0) - each).toBeGreaterThan(15 * MIB);
    const [first = '', second = '', third = '', last = ''] = ids;
    await host.destroy(vm.id);
    await host.deleteSnapshot(first);
    await host.deleteSnapshot(third);
    for (const [id, rounds] of [
      [second, '1\n2\n'],
      [last, '1\n2\n3\n4\n'],
    ] as const) {
      const fork = await host.fork(id);
      expect(await print(fork.id, 'cat /dev/shm/rounds; sha256sum -c /dev/shm/sum')).toBe(
        `${rounds}/dev/shm/large: OK\n`,
      );
      await host.destroy(fork.id);
    }
  });

  it('never have more layers than that, however many they are, and the last one is right', async () => {
    const vm = await host.create();
    const depths: number[] = [];
    let last = '';
    for (let round = 1; round <= MAX_LAYERS + 2; round++) {
      await host.shell(vm.id, `echo ${round} >> /dev/shm/rounds`);
      last = (await host.snapshot(vm.id, { wait: 'durable' })).id;
      depths.push((await layersOf(last)).length);
    }
    expect(Math.max(...depths)).toBeLessThanOrEqual(MAX_LAYERS);
    const fork = await host.fork(last);
    expect(await print(fork.id, `seq ${MAX_LAYERS + 2} | cmp - /dev/shm/rounds && echo same`)).toBe('same\n');
  });

  it('carry a process, a tmpfs file and a database under load through forks of forks, pauses and restores', async () => {
    let vm = (await host.create()).id;
    await host.startExec(vm, ['python3', '-c', LOAD], { timeout_ms: 0 }, 'load');
    let count = Number(await print(vm, READ_COUNT));
    for (let generation = 1; generation <= 3; generation++) {
      await host.shell(vm, `echo ${generation} >> /dev/shm/generations`);
      const { id } = await host.snapshot(vm, generation === 2 ? { wait: 'durable' } : {});
      const fork = (await host.fork(id)).id;
      for (const each of [vm, fork]) {
        const later = Number(await print(each, READ_COUNT));
        expect(later).toBeGreaterThanOrEqual(count);
        await vi.waitFor(async () => expect(Number(await print(each, READ_COUNT))).toBeGreaterThan(later), 20_000);
        expect(Number(await print(each, CHECK_DATABASE))).toBeGreaterThanOrEqual(later);
      }
      await host.destroy(vm);
      vm = fork;
      await host.pause(vm);
      await host.resume(vm);
      count = Number(await print(vm, READ_COUNT));
    }
    expect(await print(vm, 'cat /dev/shm/generations')).toBe('1\n2\n3\n');
  }, 240_000);

  it('are refused when a layer that they share has changed, and so is what is stored from then on as a difference to them', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'echo one > /dev/shm/file');
    const first = await host.snapshot(vm.id, { wait: 'durable' });
    const second = await host.snapshot(vm.id, { wait: 'durable' });
    const [shared = ''] = await layersOf(second.id);
    expect(await layersOf(first.id)).toEqual([shared]);
    const undo = await flipByte(join(host.snapshotsDirectory, second.id, shared));
    await expect(host.fork(second.id)).rejects.toMatchObject({ status: 500, code: 'integrity_error' });
    const third = await host.snapshot(vm.id, { wait: 'durable' });
    expect(await layersOf(third.id)).toHaveLength(1);
    for (const { id } of [first, third]) {
      const fork = await host.fork(id);
      expect(await print(fork.id, 'cat /dev/shm/file')).toBe('one\n');
    }
    await undo();
  });

  it('keep the files that VMs are started from until those run, and no others', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'head -c 8000000 /dev/urandom > /dev/shm/large; sha256sum /dev/shm/large > /dev/shm/sum');
    await host.snapshot(vm.id, { wait: 'durable' });
    const { id } = await host.snapshot(vm.id);
    const forks = await Promise.all(Array.from({ length: 4 }, () => host.fork(id)));
    for (const fork of forks) expect(await print(fork.id, 'sha256sum -c /dev/shm/sum')).toBe('/dev/shm/large: OK\n');
    await host.call('GET', `/v1/snapshots/${id}?wait_ms=30000`);
    const layers = await layersOf(id);
    expect(layers).toHaveLength(2);
    const { nlink } = await stat(join(host.snapshotsDirectory, id, layers[0] ?? ''));
    expect(nlink).toBe(2);
    const later = await host.fork(id);
    expect(await print(later.id, 'sha256sum -c /dev/shm/sum')).toBe('/dev/shm/large: OK\n');
  });

  it('share what they hold when it is much and many VMs start from one, and are whole without it', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'head -c 70000000 /dev/urandom > /dev/shm/large; sha256sum /dev/shm/large > /dev/shm/sum');
    const { id } = await host.snapshot(vm.id, { wait: 'durable' });
    const forks = await Promise.all(Array.from({ length: 4 }, () => host.fork(id)));
    const inodes = await Promise.all(
      forks.map(async (fork) => (await stat(join(await host.machineDirectory(fork.id), 'memory'))).ino),
    );
    const own = await stat(join(host.snapshotsDirectory, id, 'memory'));
    const shared = inodes.filter((inode) => inode !== own.ino);
    expect(shared).toHaveLength(3);
    expect(new Set(shared).size).toBe(1);
    await host.deleteSnapshot(id);
    for (const fork of forks)
      expect(await print(fork.id, 'sha256sum -c /dev/shm/sum; echo own >> /dev/shm/own; cat /dev/shm/own')).toBe(
        '/dev/shm/large: OK\nown\n',
      );
    const sharing = forks[inodes.findIndex((inode) => inode !== own.ino)];
    const second = await host.snapshot(sharing?.id ?? '', { wait: 'durable' });
    await host.agent.destroyAllVms();
    const forkOfFork = await host.fork(second.id);
    expect(await print(forkOfFork.id, 'sha256sum -c /dev/shm/sum; cat /dev/shm/own')).toBe('/dev/shm/large: OK\nown\n');
    await host.pause(forkOfFork.id);
    await host.resume(forkOfFork.id);
    expect(await print(forkOfFork.id, 'sha256sum -c /dev/shm/sum')).toBe('/dev/shm/large: OK\n');
  }, 240_000);
});
