import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from '../vms/test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

describe('a snapshot', () => {
  it('holds memory, processes and disk; its source and its forks run on, each for itself', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'echo disk > /workspace/file; echo memory > /tmp/file; sleep 1000 & echo $! > /tmp/pid');
    const snapshot = await host.snapshot(vm.id, { wait: 'durable' });
    expect(snapshot).toMatchObject({ state: 'durable', vm_id: vm.id, digest: expect.stringMatching(/^[0-9a-f]{64}$/) });
    const fork = await host.fork(snapshot.id);
    await host.shell(vm.id, 'echo source >> /workspace/file');
    const script = 'cat /workspace/file /tmp/file; kill -0 $(cat /tmp/pid) && echo alive; hostname';
    expect((await host.shell(fork.id, script)).stdout.toString()).toBe(`disk\nmemory\nalive\n${fork.id}\n`);
    expect((await host.shell(vm.id, 'cat /workspace/file')).stdout.toString()).toBe('disk\nsource\n');
    await host.destroy(vm.id);
    const restored = await host.restore(fork.id, { snapshot_id: snapshot.id, restore_id: 'one' });
    expect(restored).toMatchObject({ state: 'running', restore_id: 'one' });
    expect((await host.shell(fork.id, script)).stdout.toString()).toBe(`disk\nmemory\nalive\n${fork.id}\n`);
    await host.destroy(fork.id);
    const { freed_bytes } = await host.deleteSnapshot(snapshot.id);
    expect(freed_bytes).toBeGreaterThan(1_000_000);
  });

  it('of the disk alone is of a whole file system, which boots', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'echo disk > /workspace/file; echo memory > /tmp/file; sleep 1000 &');
    const snapshot = await host.snapshot(vm.id, { include_memory: false });
    expect((await host.shell(vm.id, 'echo on > /workspace/on; cat /workspace/on')).stdout.toString()).toBe('on\n');
    const fork = await host.fork(snapshot.id);
    expect((await host.shell(fork.id, 'cat /workspace/file; ls /tmp/file')).stdout.toString()).toBe('disk\n');
    await Promise.all([host.destroy(vm.id), host.destroy(fork.id)]);
  });
});
