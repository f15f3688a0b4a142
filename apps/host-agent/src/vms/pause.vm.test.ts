import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { flipByte } from './test-damage.ts';
import { streamsOf, TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

const COUNTER = 'i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done';
const counted = Array.from({ length: 20_000 }, (_, i) => `line ${i}\n`).join('');
const sum = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');
const print = async (vm: string, script: string) => (await host.shell(vm, script)).stdout.toString();

describe('a paused VM', () => {
  it('has no VMM, takes no command, and goes on where it was', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'echo kept > /workspace/file; echo kept > /tmp/file; sleep 1000 & echo $! > /tmp/pid');
    const pid = await host.vmmPid(vm.id);
    const { id } = await host.startExec(vm.id, ['sh', '-c', 'read line; echo $line'], {}, 'ended');
    await host.endOf(vm.id, id);
    expect(await host.pause(vm.id)).toMatchObject({ state: 'paused' });
    await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), 5_000);
    await expect(host.startExec(vm.id, ['true'])).rejects.toMatchObject({
      status: 409,
      code: 'conflict',
      details: { state: 'paused' },
    });
    await expect(host.collect(vm.id, { globs: ['*'] })).rejects.toMatchObject({ status: 409, code: 'conflict' });
    expect(await host.call('GET', `/v1/vms/${vm.id}/execs/ended`)).toMatchObject({ state: 'exited' });
    expect(await host.resume(vm.id)).toMatchObject({ state: 'running', created_at: vm.created_at });
    const script = 'cat /workspace/file /tmp/file; kill -0 $(cat /tmp/pid) && echo alive';
    expect(await print(vm.id, script)).toBe('kept\nkept\nalive\n');
    expect((await readdir(join(host.vmsDirectory, vm.id))).sort()).toEqual(['execs', 'machine-2', 'vm.json']);
    await host.destroy(vm.id);
  });

  it('has every file after 20 rounds of write, pause, resume', async () => {
    const { id } = await host.create();
    for (let round = 0; round < 20; round++) {
      await host.shell(id, `echo ${round} > /workspace/${round}; echo ${round} >> /tmp/rounds`);
      await host.pause(id);
      await host.resume(id);
    }
    const rounds = Array.from({ length: 20 }, (_, round) => `${round}\n`).join('');
    expect(await print(id, 'cat /tmp/rounds; cat $(ls /workspace/* | sort -t/ -k3n)')).toBe(rounds + rounds);
    await host.destroy(id);
  });

  it('answers at once, 50 times', async () => {
    const { id } = await host.create();
    const waits: number[] = [];
    for (let round = 0; round < 50; round++) {
      await host.pause(id);
      const { timings } = await host.resume(id);
      expect(await print(id, `echo ${round}`)).toBe(`${round}\n`);
      waits.push(timings?.channel_ms ?? Number.NaN);
    }
    expect(Math.max(...waits)).toBeLessThan(10_000); // catches a channel that hangs
    await host.destroy(id);
  }, 240_000);

  it('is resumed, and paused, once for all who ask at the same time', async () => {
    const { id } = await host.create();
    const ten = <T>(ask: () => Promise<T>) => Promise.all(Array.from({ length: 10 }, ask));
    for (const vm of await ten(() => host.pause(id))) expect(vm.state).toBe('paused');
    for (const vm of await ten(() => host.resume(id))) expect(vm.state).toBe('running');
    expect(await readdir(join(host.vmsDirectory, id))).toContain('machine-2');
    await host.destroy(id);
  });

  it('outlives the host agent, with its execs', async () => {
    const { id } = await host.create();
    await host.startExec(id, ['sh', '-c', `sleep 1; ${COUNTER}`], {}, 'count');
    await host.pause(id);
    await host.stop();
    await host.start();
    expect(await host.call('GET', `/v1/vms/${id}`)).toMatchObject({ state: 'paused' });
    expect(await host.call('GET', `/v1/vms/${id}/execs/count`)).toMatchObject({ state: 'running' });
    await host.resume(id);
    expect(await host.endOf(id, 'count')).toMatchObject({ state: 'exited', exit: { exit_code: 0 } });
    expect(sum(streamsOf(await host.log(id, 'count')).stdout)).toBe(sum(counted));
    await host.destroy(id);
  });

  it('can be destroyed, at any moment of a pause or a resume too', async () => {
    for (const momentMs of [0, 50, 150, 400]) {
      const { id } = await host.create();
      const pausing = host.pause(id).catch((error: { code: string }) => error.code);
      await sleep(momentMs);
      expect((await host.destroy(id)).destroyed).toBe(true);
      await pausing;
      const other = await host.create();
      await host.pause(other.id);
      const resuming = host.resume(other.id).catch((error: { code: string }) => error.code);
      await sleep(momentMs);
      expect((await host.destroy(other.id)).destroyed).toBe(true);
      await resuming;
      expect(await readdir(host.vmsDirectory)).toEqual([]);
    }
  });

  it('is not one of the VMs that the host may have', async () => {
    await using small = await TestHost.open({ capacity: { cpus: 8, ramMb: 8_192, storageGb: undefined, maxVms: 1 } });
    const first = await small.create();
    await expect(small.create()).rejects.toMatchObject({ status: 503 });
    await small.pause(first.id);
    const second = await small.create();
    await expect(small.resume(first.id)).rejects.toMatchObject({ status: 503 });
    expect(await small.call('GET', `/v1/vms/${first.id}`)).toMatchObject({ state: 'paused' });
    await small.destroy(second.id);
    expect(await small.resume(first.id)).toMatchObject({ state: 'running' });
  });
});

describe('a command across pause and resume', () => {
  it('that prints loses no byte and repeats none, whoever follows it', async () => {
    const { id } = await host.create();
    await host.startExec(id, ['sh', '-c', COUNTER], {}, 'count');
    const following = host.log(id, 'count', { follow: true });
    for (let round = 0; round < 4; round++) {
      await sleep(50);
      await host.pause(id);
      await sleep(50);
      await host.resume(id);
    }
    expect(await host.endOf(id, 'count')).toMatchObject({ state: 'exited', exit: { exit_code: 0 } });
    for (const log of [await host.log(id, 'count'), await following])
      expect(sum(streamsOf(log).stdout)).toBe(sum(counted));
    await host.destroy(id);
  });

  it('that is silent ends as it would have, its time limit not used up by the pause', async () => {
    const { id } = await host.create();
    await host.startExec(id, ['sh', '-c', 'sleep 2; echo late; exit 7'], { timeout_ms: 4_000 }, 'silent');
    await host.pause(id);
    await sleep(4_500);
    await host.resume(id);
    expect(await host.endOf(id, 'silent')).toMatchObject({ state: 'exited', exit: { exit_code: 7, timed_out: false } });
    expect((await host.result(id, 'silent')).stdout.toString()).toBe('late\n');
    await host.destroy(id);
  });

  it('that reads stdin gets every byte of it', async () => {
    const { id } = await host.create();
    const bytes = Buffer.alloc(3_000_000, 'stdin of some length. ');
    const key = await host.putObject('stdin', bytes);
    const slowly = 'while head -c 200000 > /tmp/part; [ -s /tmp/part ]; do cat /tmp/part; sleep 0.1; done | sha256sum';
    await host.startExec(id, ['sh', '-c', slowly], { stdin_object_key: key }, 'reader');
    for (let round = 0; round < 3; round++) {
      await sleep(200);
      await host.pause(id);
      await host.resume(id);
    }
    expect(await host.endOf(id, 'reader')).toMatchObject({ state: 'exited' });
    expect((await host.result(id, 'reader')).stdout.toString()).toContain(sum(bytes));
    await host.destroy(id);
  });
});

describe('a paused VM whose bytes have changed', () => {
  it('is not resumed, and stays paused', async () => {
    const { id } = await host.create();
    await host.shell(id, 'echo kept > /workspace/file');
    await host.pause(id);
    const machine = await host.machineDirectory(id);
    const list = () => readFile(join(machine, 'paused.json'), 'utf8');
    await vi.waitFor(async () => expect(await list()).toContain('digest'), 30_000);
    const saved = (await readdir(join(machine, 'paused'))).map((name) => join('paused', name));
    for (const name of [...saved, 'writable.img']) {
      const undo = await flipByte(join(machine, name));
      await expect(host.resume(id), name).rejects.toMatchObject({ status: 500, code: 'integrity_error' });
      expect(await host.call('GET', `/v1/vms/${id}`)).toMatchObject({ state: 'paused' });
      await host.stop();
      await host.start();
      await expect(host.resume(id), name).rejects.toMatchObject({ status: 500, code: 'integrity_error' });
      await undo();
    }
    await host.resume(id);
    expect(await print(id, 'cat /workspace/file')).toBe('kept\n');
    await host.destroy(id);
  });
});
