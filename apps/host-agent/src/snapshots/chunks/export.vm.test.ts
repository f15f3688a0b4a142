import { once } from 'node:events';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExportedSnapshot, HostVm, SnapshotChunks } from '@fuse/host-protocol';
import { newId, sleep } from '@fuse/runtime';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from '../../vms/test-host.ts';
import { TestProgram } from '../../vms/test-program.ts';

const PREFIX = 'snapshots/chunks';
const manifestKey = (id: string) => `snapshots/manifests/${id}`;

/** Two hosts that have nothing in common but the object store. */
describe('a snapshot in the object store', { timeout: 300_000 }, () => {
  let source: TestHost;
  let target: TestHost;
  let vm: HostVm;
  const stored = new Set<string>();
  const first = newId('snap');
  let firstBytes = 0;

  beforeAll(async () => {
    source = await TestHost.open();
    target = await TestHost.open({ objectStore: { kind: 'file', directory: join(source.directory, 'objects') } });
    vm = await source.create();
    const count = 'i=0; while :; do i=$((i+1)); echo $i > /dev/shm/count; sleep 0.05; done';
    await source.startExec(vm.id, ['sh', '-c', count], { timeout_ms: 0 });
    await source.shell(vm.id, 'echo kept > /root/kept; head -c 3000000 /dev/urandom > /dev/shm/noise; sync');
  });
  afterAll(async () => {
    await source.stop(); // what it has open is no leak of the target's
    await target[Symbol.asyncDispose]();
    await source[Symbol.asyncDispose]();
  });

  const output = async (host: TestHost, vmId: string, script: string) =>
    (await host.shell(vmId, script)).stdout.toString().trim();
  const countIn = async (host: TestHost, vmId: string) => Number(await output(host, vmId, 'cat /dev/shm/count'));
  const missingOf = async (host: TestHost, id: string) => {
    const { chunks } = await host.call<SnapshotChunks>('POST', `/v1/snapshots/${id}/chunks`);
    return chunks.map(({ sha256 }) => sha256).filter((sha256) => !stored.has(sha256));
  };
  const upload = async (host: TestHost, id: string, missing: string[]) => {
    const order = { chunk_prefix: PREFIX, manifest_key: manifestKey(id), missing };
    const exported = await host.call<ExportedSnapshot>('PUT', `/v1/snapshots/${id}/export`, order);
    for (const { sha256 } of exported.uploaded) stored.add(sha256);
    return exported.uploaded.reduce((sum, { stored_bytes }) => sum + stored_bytes, 0);
  };
  const seed = (id: string) => ({ seed: { snapshot_id: id, manifest_key: manifestKey(id) } });
  const objectFile = (sha256: string) =>
    join(source.directory, 'objects', 'objects', PREFIX, sha256.slice(0, 2), sha256);

  it('starts on a host that never had it, and its processes go on there', async () => {
    await source.snapshot(vm.id, { wait: 'durable' }, first);
    const counted = await countIn(source, vm.id);
    firstBytes = await upload(source, first, await missingOf(source, first));
    const there = await target.create(seed(first));
    const began = await countIn(target, there.id);
    expect(began).toBeGreaterThan(0);
    await expect.poll(() => countIn(target, there.id), { timeout: 30_000 }).toBeGreaterThan(began);
    expect(await output(target, there.id, 'cat /root/kept')).toBe('kept');
    expect(await output(target, there.id, 'sha256sum < /dev/shm/noise')).toBe(
      await output(source, vm.id, 'sha256sum < /dev/shm/noise'),
    );
    expect(await countIn(source, vm.id)).toBeGreaterThan(counted);
    const here = new Set(await inodes(source, first));
    for (const inode of await inodes(target, first)) expect(here.has(inode)).toBe(false);
    await target.destroy(there.id);
  });

  it('costs only its difference to one that is there already', async () => {
    await source.shell(vm.id, 'head -c 1000000 /dev/urandom > /dev/shm/more');
    const second = newId('snap');
    await source.snapshot(vm.id, { wait: 'durable' }, second);
    const secondBytes = await upload(source, second, await missingOf(source, second));
    expect(secondBytes).toBeGreaterThan(1_000_000);
    expect(secondBytes).toBeLessThan(firstBytes / 2);
    const there = await target.create(seed(second));
    expect(await output(target, there.id, 'sha256sum < /dev/shm/more')).toBe(
      await output(source, vm.id, 'sha256sum < /dev/shm/more'),
    );
    await target.destroy(there.id);
    await target.deleteSnapshot(second);
  });

  it('is refused when a byte of it was flipped, and nothing is left of the attempt', async () => {
    await target.deleteSnapshot(first);
    const [sha256 = ''] = stored;
    const path = objectFile(sha256);
    const whole = await readFile(path);
    const flipped = Buffer.from(whole);
    flipped[100] = (flipped[100] ?? 0) ^ 1;
    await writeFile(path, flipped);
    await expect(target.create(seed(first))).rejects.toMatchObject({ status: 500, code: 'integrity_error' });
    expect((await target.list()).vms).toEqual([]);
    expect(await readdir(target.snapshotsDirectory)).toEqual([]);
    await writeFile(path, whole);
    await target.destroy((await target.create(seed(first))).id);
  });

  describe('by a host agent that is killed midway', () => {
    let program: TestProgram;
    beforeAll(async () => {
      await source.stop();
      program = new TestProgram(source);
    });
    afterEach(() => program.kill());

    it('is taken up again by the next one', async () => {
      let running = await program.start();
      await source.shell(vm.id, 'head -c 24000000 /dev/urandom > /dev/shm/much');
      const third = newId('snap');
      await source.snapshot(vm.id, { wait: 'durable' }, third);
      const missing = await missingOf(source, third);
      const isThere = (sha256: string) =>
        stat(objectFile(sha256)).then(
          () => true,
          () => false,
        );
      const uploading = upload(source, third, missing).catch((error: unknown) => error);
      while (!(await isThere(missing[10] ?? ''))) await sleep(2);
      running.kill('SIGKILL');
      await once(running, 'exit');
      expect(await uploading).toBeInstanceOf(Error);
      const there = await Promise.all(missing.map(isThere));
      const left = missing.filter((_, index) => !there[index]);
      expect(left.length).toBeGreaterThan(0);
      expect(left.length).toBeLessThan(missing.length);
      running = await program.start();
      await upload(source, third, left);
      const copy = await target.create(seed(third));
      expect(await output(target, copy.id, 'sha256sum < /dev/shm/much')).toBe(
        await output(source, vm.id, 'sha256sum < /dev/shm/much'),
      );
      running.kill('SIGTERM');
      await once(running, 'exit');
    });
  });
});

async function inodes(host: TestHost, snapshotId: string): Promise<number[]> {
  const directory = join(host.snapshotsDirectory, snapshotId);
  const names = await readdir(directory);
  return Promise.all(names.map(async (name) => (await stat(join(directory, name))).ino));
}
