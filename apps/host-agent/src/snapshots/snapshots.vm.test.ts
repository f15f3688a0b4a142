import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { HostSnapshot } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { flipByte } from '../vms/test-damage.ts';
import { TEST_SHAPE, TestHost } from '../vms/test-host.ts';

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
const SET_UP = 'echo disk > /workspace/file; echo memory > /run/file; sleep 1000 & echo $! > /tmp/pid';
const LOOK = 'cat /workspace/file /run/file; kill -0 $(cat /tmp/pid) && echo alive';
const WHOLE = 'disk\nmemory\nalive\n';

describe('a snapshot', () => {
  it('holds memory, processes and disk; its source and its forks run on, each for itself', async () => {
    const vm = await host.create();
    await host.shell(vm.id, SET_UP);
    const { id } = await host.snapshot(vm.id, { wait: 'durable' });
    const seen = await host.call('GET', `/v1/snapshots/${id}`);
    expect(seen).toMatchObject({ state: 'durable', vm_id: vm.id, digest: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(await host.snapshot(vm.id, {}, id)).toEqual(seen);
    await host.shell(vm.id, 'echo source >> /workspace/file; echo source >> /run/file');
    const fork = await host.fork(id);
    expect(await print(fork.id, `${LOOK}; hostname`)).toBe(`${WHOLE}${fork.id}\n`);
    await host.shell(fork.id, 'echo fork >> /workspace/file');
    expect(await print(vm.id, LOOK)).toBe('disk\nsource\nmemory\nsource\nalive\n');
    await host.destroy(vm.id);
    expect(await host.snapshot(vm.id, {}, id)).toEqual(seen);
    await expect(host.snapshot(fork.id, {}, id)).rejects.toMatchObject({ status: 409 });
    expect(await print(fork.id, 'cat /workspace/file')).toBe('disk\nfork\n');
    const second = await host.snapshot(fork.id);
    const forkOfFork = await host.fork(second.id);
    expect(await print(forkOfFork.id, LOOK)).toBe('disk\nfork\nmemory\nalive\n');
    await host.deleteSnapshot(second.id);
    expect(await print(forkOfFork.id, `${LOOK}`)).toContain('alive');
  });

  it('is not noticed by what is under way', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'head -c 60000000 /dev/urandom > /workspace/large');
    await host.startExec(vm.id, ['sh', '-c', 'cat /workspace/large; sleep 1'], { max_log_bytes: 1 }, 'reader');
    const collecting = host.collect(vm.id, { globs: ['large'] });
    for (let round = 0; round < 5; round++) {
      const { id } = await host.snapshot(vm.id, { include_memory: round % 2 === 0 });
      await host.deleteSnapshot(id);
    }
    const { outputs } = await collecting;
    expect(await print(vm.id, 'sha256sum < /workspace/large')).toContain(outputs[0]?.sha256);
    expect(await host.endOf(vm.id, 'reader')).toMatchObject({ state: 'exited', exit: { stdout_bytes: 60_000_000 } });
  });

  it('is written over a VM in place, once for each restore', async () => {
    const vm = await host.create();
    await host.shell(vm.id, SET_UP);
    const { id } = await host.snapshot(vm.id);
    await host.shell(vm.id, 'echo later > /workspace/file');
    await host.startExec(vm.id, ['sleep', '600'], {}, 'long');
    const waiting = host.endOf(vm.id, 'long');
    const restore = { snapshot_id: id, restore_id: 'one' };
    expect(await host.restore(vm.id, restore)).toMatchObject({ state: 'running', restore_id: 'one' });
    expect(await waiting).toMatchObject({ state: 'lost', error: expect.stringContaining('restored') });
    expect(await print(vm.id, LOOK)).toBe(WHOLE);
    await host.shell(vm.id, 'echo again > /workspace/file');
    await host.restore(vm.id, restore);
    expect(await print(vm.id, 'cat /workspace/file')).toBe('again\n');
    await expect(host.restore(vm.id, { snapshot_id: 'nowhere', restore_id: 'two' })).rejects.toMatchObject({
      status: 404,
    });
    expect(await print(vm.id, 'cat /workspace/file')).toBe('again\n');
    await host.pause(vm.id);
    await host.restore(vm.id, { snapshot_id: id, restore_id: 'three' });
    expect(await print(vm.id, LOOK)).toBe(WHOLE);
    process.kill(await host.vmmPid(vm.id), 'SIGKILL');
    await vi.waitFor(async () => expect((await host.list()).vms[0]?.state).toBe('dead'), 5_000);
    await host.restore(vm.id, { snapshot_id: id, restore_id: 'four' });
    expect(await print(vm.id, LOOK)).toBe(WHOLE);
  });

  it('gives execs of its forks names that its own execs do not have', async () => {
    const vm = await host.create();
    await host.startExec(vm.id, ['sh', '-c', 'echo of the source; sleep 600'], {}, 'same');
    const { id } = await host.snapshot(vm.id);
    const fork = await host.fork(id);
    await host.startExec(fork.id, ['echo', 'of the fork'], {}, 'same');
    await host.endOf(fork.id, 'same');
    expect((await host.result(fork.id, 'same')).stdout.toString()).toBe('of the fork\n');
    expect(await host.call('GET', `/v1/vms/${vm.id}/execs/same`)).toMatchObject({ state: 'running' });
  });

  it('makes twenty VMs at once, all different', async () => {
    const vm = await host.create();
    await host.shell(vm.id, SET_UP);
    const { id } = await host.snapshot(vm.id);
    const forks = await Promise.all(Array.from({ length: 20 }, () => host.fork(id)));
    const script = `${LOOK}; hostname; cat /etc/machine-id; od -An -tx1 -N16 /dev/urandom; echo $HOSTNAME >> /workspace/own; wc -l < /workspace/own`;
    const seen = await Promise.all(forks.map((fork) => print(fork.id, script)));
    for (const text of seen) expect(text.startsWith(WHOLE) && text.endsWith('\n1\n')).toBe(true);
    for (const line of [3, 4, 5]) expect(new Set(seen.map((text) => text.split('\n')[line])).size).toBe(20);
    expect(await print(vm.id, LOOK)).toBe(WHOLE);
  }, 240_000);

  it('of the disk alone is of a whole file system, which boots', async () => {
    const vm = await host.create();
    await host.shell(vm.id, SET_UP);
    const { id } = await host.snapshot(vm.id, { include_memory: false });
    expect(await print(vm.id, 'echo on > /workspace/on; cat /workspace/on')).toBe('on\n');
    const fork = await host.fork(id);
    expect(await print(fork.id, 'cat /workspace/file; ls /run/file')).toBe('disk\n');
    await host.restore(vm.id, { snapshot_id: id, restore_id: 'one' });
    expect(await print(vm.id, 'cat /workspace/file; ls /run/file /workspace/on')).toBe('disk\n');
  });

  it.each([
    { include_memory: true, rounds: 40 },
    { include_memory: false, rounds: 10 },
  ])(
    'taken under write load holds a clean disk, every time: %j',
    async ({ include_memory, rounds }) => {
      const vm = await host.create();
      const load =
        'i=0; while :; do head -c 300000 /dev/urandom > /workspace/f$((i % 40)); mkdir -p /workspace/d/$i; i=$((i+1)); done';
      await host.shell(vm.id, 'echo sentinel > /workspace/sentinel; sync');
      await host.startExec(vm.id, ['sh', '-c', load], { timeout_ms: 0 }, 'load');
      for (let round = 0; round < rounds; round++) {
        await sleep(300);
        const { id } = await host.snapshot(vm.id, { include_memory, wait: 'durable' });
        const fork = await host.fork(id);
        expect(await print(fork.id, 'cat /workspace/sentinel')).toBe('sentinel\n');
        await host.destroy(fork.id);
        expect(await checkedDisk(join(host.snapshotsDirectory, id, 'disk.img'))).toBe('clean');
        await host.deleteSnapshot(id);
      }
      expect(await host.call('GET', `/v1/vms/${vm.id}/execs/load`)).toMatchObject({ state: 'running' });
    },
    600_000,
  );
});

/** `clean`, or what e2fsck says, once the journal has been played on a copy. */
async function checkedDisk(path: string): Promise<string> {
  const copy = `${path}.check`;
  const run = promisify(execFile);
  const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' };
  try {
    await run('cp', ['--sparse=always', path, copy], { env });
    await run('e2fsck', ['-p', '-E', 'journal_only', copy], { env }).catch(() => {}); // 1: it was played
    await run('e2fsck', ['-f', '-n', copy], { env });
    return 'clean';
  } catch (error) {
    return String((error as { stdout?: string }).stdout ?? error);
  } finally {
    await promisify(execFile)('rm', ['-f', copy]);
  }
}

describe('a snapshot that cannot be used', () => {
  it('because a byte of any of its files has changed, is refused and broken from then on', async () => {
    const vm = await host.create();
    const { id } = await host.snapshot(vm.id, { wait: 'durable' });
    const directory = join(host.snapshotsDirectory, id);
    const names = (await readdir(directory)).filter((name) => name !== 'snapshot.json');
    const record = await readFile(join(directory, 'snapshot.json'));
    expect(names.length).toBeGreaterThan(2);
    for (const name of names) {
      const undo = await flipByte(join(directory, name));
      await expect(host.fork(id), name).rejects.toMatchObject({ status: 500, code: 'integrity_error' });
      expect(await host.call('GET', `/v1/snapshots/${id}`)).toMatchObject({ state: 'broken' });
      const restore = { snapshot_id: id, restore_id: name };
      await expect(host.restore(vm.id, restore)).rejects.toMatchObject({ code: 'integrity_error' });
      expect(await print(vm.id, 'echo runs on')).toBe('runs on\n');
      await undo();
      await host.stop();
      await writeFile(join(directory, 'snapshot.json'), record);
      await host.start();
      expect(await host.call('GET', `/v1/snapshots/${id}`)).toMatchObject({ state: 'durable' });
    }
    await host.fork(id);
  });

  it('because of the VMM or kernel that it was made with, is refused, or gives its disk', async () => {
    const vm = await host.create();
    await host.shell(vm.id, `${SET_UP}; sync`);
    const { id } = await host.snapshot(vm.id, { wait: 'durable' });
    await edit(id, (text) => text.replace(/"driver":"[^"]*"/, '"driver":"another"'));
    await expect(host.fork(id)).rejects.toMatchObject({ status: 409, details: { reason: 'incompatible' } });
    const fork = await host.create({ seed: { snapshot_id: id, fallback: 'disk' } });
    expect(fork).toMatchObject({ disk_only: true });
    expect(await print(fork.id, 'cat /workspace/file; ls /run/file')).toBe('disk\n');
    await edit(id, (text) => text.replace(/"made_on":\{"image":"[^"]*"/, '"made_on":{"image":"another"'));
    const seed = { snapshot_id: id, fallback: 'disk' } as const;
    await expect(host.create({ seed })).rejects.toMatchObject({ status: 409, details: { reason: 'incompatible' } });
    await expect(host.fork('nowhere')).rejects.toMatchObject({ status: 404 });
    await expect(host.fork(id, { shape: { ...TEST_SHAPE, ram_mb: 512 } })).rejects.toMatchObject({ status: 400 });
    await expect(host.fork(id, { tag: 'another' })).rejects.toMatchObject({ status: 404 });
    expect((await host.list()).vms).toHaveLength(2);
  });

  it('because its host ended before it was flushed, is broken; one whose host agent alone ended is finished', async () => {
    const vm = await host.create();
    const { id } = await host.snapshot(vm.id, { wait: 'durable' });
    await edit(id, (text) => text.replace('"state":"durable"', '"state":"usable"').replace(/,"digest":"\w*"/g, ''));
    expect(await host.call('GET', `/v1/snapshots/${id}?wait_ms=30000`)).toMatchObject({ state: 'durable' });
    await edit(id, (text) => text.replace('"durable"', '"usable"').replace(/"boot_id":"[^"]*"/, '"boot_id":"other"'));
    expect(await host.call('GET', `/v1/snapshots/${id}?wait_ms=30000`)).toMatchObject({ state: 'broken' });
    await expect(host.fork(id)).rejects.toMatchObject({ status: 500, code: 'integrity_error' });
  });

  it('because there is no room, leaves nothing, and its VM runs on', async () => {
    await using full = await TestHost.open({ storageReserveMb: 64 });
    const vm = await full.create();
    await full.stop();
    await full.start({ storageReserveMb: 100_000_000 });
    for (const refused of [() => full.snapshot(vm.id), () => full.pause(vm.id)])
      await expect(refused()).rejects.toMatchObject({ status: 503 });
    expect(await readdir(full.snapshotsDirectory)).toEqual([]);
    expect((await full.shell(vm.id, 'echo on')).stdout.toString()).toBe('on\n');
  });

  /** With the host agent stopped. */
  async function edit(id: string, change: (text: string) => string): Promise<void> {
    await host.stop();
    const path = join(host.snapshotsDirectory, id, 'snapshot.json');
    await writeFile(path, change(await readFile(path, 'utf8')));
    await host.start();
  }
});

describe('deleting a snapshot', () => {
  it('frees what nothing else holds, and says how much', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'head -c 8000000 /dev/urandom > /workspace/large; sync');
    const { id } = await host.snapshot(vm.id, { wait: 'durable' });
    const directory = join(host.snapshotsDirectory, id);
    const stats = await Promise.all((await readdir(directory)).map((name) => stat(join(directory, name))));
    const own = stats.filter(({ nlink }) => nlink === 1).reduce((sum, { blocks }) => sum + blocks * 512, 0);
    expect(own).toBeGreaterThan(8_000_000);
    expect(await host.deleteSnapshot(id)).toEqual({ deleted: true, freed_bytes: own });
    expect(await host.deleteSnapshot(id)).toEqual({ deleted: false, freed_bytes: 0 });
    await expect(host.fork(id)).rejects.toMatchObject({ status: 404 });
  });

  it('while it is taken, or VMs are started from it, leaves nothing half-made', async () => {
    const vm = await host.create();
    for (const momentMs of [0, 20, 60, 150]) {
      const id = `early-${momentMs}`;
      const taking = host.snapshot(vm.id, {}, id).catch((error: { code: string }) => error.code);
      await sleep(momentMs);
      await host.deleteSnapshot(id);
      await taking;
      expect(await print(vm.id, 'echo runs on')).toBe('runs on\n');
    }
    const { id } = await host.snapshot(vm.id);
    const ids = Array.from({ length: 4 }, (_, number) => `held-${number}`);
    const starts = ids.map((fork) => host.fork(id, {}, fork));
    const begun = (fork: string) => existsSync(join(host.vmsDirectory, fork, 'machine-1', 'writable.img'));
    await vi.waitFor(() => expect(ids.every(begun)).toBe(true), 20_000);
    const [deleted] = await Promise.all([host.deleteSnapshot(id), ...starts]);
    expect(deleted).toMatchObject({ deleted: true });
    for (const start of starts) expect(await print((await start).id, 'echo runs')).toBe('runs\n');
  });
});
