import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { newId, sleep } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
  await host.destroy((await host.create()).id); // the template
});
afterAll(() => host[Symbol.asyncDispose]());

const twenty = Array.from({ length: 20 }, (_, index) => index);

describe('a VM', () => {
  it('starts, runs a command, and is gone with every trace', async () => {
    const vm = await host.create({ hostname: 'a-name', env: { OF_THE_VM: 'x', BOTH: 'vm' } });
    expect(vm).toMatchObject({ state: 'running', tag: 'test-cluster', image: 'base' });
    expect(vm.timings?.total_ms).toBeGreaterThan(0);
    const script =
      'echo $OF_THE_VM $BOTH; hostname; cat /etc/machine-id; date +%s%3N; cat /proc/sys/kernel/random/uuid';
    const { exec, stdout } = await host.shell(vm.id, script, { env: { BOTH: 'exec' } });
    const [env, hostname, machineId, clock] = stdout.toString().split('\n');
    expect(exec).toMatchObject({ state: 'exited', exit: { exit_code: 0 } });
    expect([env, hostname]).toEqual(['x exec', 'a-name']);
    expect(machineId).toMatch(/^[0-9a-f]{32}$/);
    expect(Math.abs(Number(clock) - Date.now())).toBeLessThan(2_000);
    expect(await host.list()).toMatchObject({ vms: [{ id: vm.id, state: 'running' }] });
    expect((await host.destroy(vm.id)).destroyed).toBe(true);
    expect(await host.list()).toEqual({ vms: [] });
    expect(await readdir(host.vmsDirectory)).toEqual([]);
    expect((await host.destroy(vm.id)).destroyed).toBe(false);
  });

  it('boots cold when asked to', async () => {
    const vm = await host.create({ start: 'cold' });
    expect((await host.shell(vm.id, 'echo up')).stdout.toString()).toBe('up\n');
    expect(vm.timings?.template_ms).toBeUndefined();
    await host.destroy(vm.id);
  });

  it('shares nothing with another of the same template', async () => {
    const [one, other] = await Promise.all([host.create(), host.create()]);
    const script =
      'cat /etc/machine-id /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | od -An -tx1; echo x > /workspace/mine; ls /workspace';
    const outputs = await Promise.all(
      [one, other].map(async ({ id }) => (await host.shell(id, script)).stdout.toString().split('\n')),
    );
    for (const line of [0, 1, 2]) expect(outputs[0]?.[line]).not.toBe(outputs[1]?.[line]);
    expect((await host.shell(other.id, 'rm /workspace/mine; ls /workspace')).stdout.toString()).toBe('');
    expect((await host.shell(one.id, 'ls /workspace')).stdout.toString()).toBe('mine\n');
    await Promise.all([host.destroy(one.id), host.destroy(other.id)]);
  });

  it('is started once, however often it is asked for', async () => {
    const id = newId('vm');
    const answers = await Promise.all(
      twenty.map(() =>
        host.fetch('PUT', `/v1/vms/${id}`, {
          image: 'base',
          shape: { cpus: 1, ram_mb: 256, storage_gb: 1 },
          tag: 't',
          hostname: 'h',
        }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([...twenty.slice(1).map(() => 200), 201]);
    expect((await host.list()).vms.length).toBe(1);
    await expect(host.create({ tag: 'another' }, id)).rejects.toMatchObject({ status: 409, code: 'conflict' });
    await host.destroy(id);
  });

  it('keeps secrets of its order in a file that only its owner reads, and out of its views', async () => {
    const vm = await host.create({ env: { SECRET: 'hunter2' } });
    const path = join(host.vmsDirectory, vm.id, 'vm.json');
    expect((await stat(path)).mode & 0o077).toBe(0);
    expect(await readFile(path, 'utf8')).toContain('hunter2');
    expect(JSON.stringify(await host.list())).not.toContain('hunter2');
    await host.destroy(vm.id);
  });
});

describe('destroying a VM', () => {
  it('is one end for twenty who ask at once', async () => {
    const { id } = await host.create();
    await host.startExec(id, ['sleep', '600']);
    const answers = await Promise.all(twenty.map(() => host.destroy(id)));
    expect(answers.every(({ destroyed }) => destroyed)).toBe(true);
    expect(await readdir(host.vmsDirectory)).toEqual([]);
  });

  it.each([0, 5, 20, 60, 100, 150, 250])('ends a start that has gone on for %i ms', async (ms) => {
    const id = newId('vm');
    const starting = host.create({}, id).then(
      () => 'started',
      (error: { status: number }) => error.status,
    );
    await sleep(ms);
    await host.destroy(id);
    expect(['started', 409]).toContain(await starting);
    await host.destroy(id); // when it was asked for before the start had arrived
    expect(await host.list()).toEqual({ vms: [] });
    expect(await readdir(host.vmsDirectory)).toEqual([]);
  });

  it('is refused to nobody who starts it again afterwards', async () => {
    const id = newId('vm');
    for (const _round of [1, 2]) {
      await host.create({}, id);
      await host.destroy(id);
    }
    expect(await readdir(host.vmsDirectory)).toEqual([]);
  });
});
