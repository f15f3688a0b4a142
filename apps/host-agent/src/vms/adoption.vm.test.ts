import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { streamsOf, TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

/** Prints numbered lines for some seconds, on both streams. */
const COUNTER =
  'i=0; while [ $i -lt 6000 ]; do echo "line $i of the output"; [ $((i % 7)) = 0 ] && echo "err $i" >&2; i=$((i+1)); done';
const expected = (() => {
  const lines = Array.from({ length: 6_000 }, (_, i) => i);
  return {
    stdout: lines.map((i) => `line ${i} of the output\n`).join(''),
    stderr: lines
      .filter((i) => i % 7 === 0)
      .map((i) => `err ${i}\n`)
      .join(''),
  };
})();
const sum = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');

const pidOf = (id: string) => host.vmmPid(id);

describe('a host agent that starts again', () => {
  it('goes on with a running exec, without a gap or a byte twice', async () => {
    const vm = await host.create();
    const { id } = await host.startExec(vm.id, ['sh', '-c', COUNTER]);
    for (let round = 0; round < 4; round++) {
      await sleep(150);
      await host.stop();
      await sleep(round * 100);
      await host.start();
    }
    expect(await host.call('GET', `/v1/vms/${vm.id}`)).toMatchObject({ state: 'running', created_at: vm.created_at });
    expect(await host.endOf(vm.id, id)).toMatchObject({
      state: 'exited',
      exit: { exit_code: 0 },
      log_truncated: false,
    });
    const { stdout, stderr, exited } = streamsOf(await host.log(vm.id, id));
    expect(exited).toBe(true);
    expect(sum(stdout)).toBe(sum(expected.stdout));
    expect(sum(stderr)).toBe(sum(expected.stderr));
    expect((await host.shell(vm.id, 'echo still here')).stdout.toString()).toBe('still here\n');
    await host.destroy(vm.id);
  });

  it('goes on with stdin where it stopped', async () => {
    const vm = await host.create();
    const bytes = Buffer.alloc(3_000_000, 'stdin of some length. ');
    const key = await host.putObject('stdin', bytes);
    const slowly = 'while head -c 200000 > /tmp/part; [ -s /tmp/part ]; do cat /tmp/part; sleep 0.1; done | sha256sum';
    const { id } = await host.startExec(vm.id, ['sh', '-c', slowly], { stdin_object_key: key });
    for (let round = 0; round < 3; round++) {
      await sleep(200);
      await host.stop();
      await host.start();
    }
    expect(await host.endOf(vm.id, id)).toMatchObject({ state: 'exited' });
    expect((await host.result(vm.id, id)).stdout.toString()).toContain(sum(bytes));
    await host.destroy(vm.id);
  });

  it('finds the end of an exec that ended meanwhile, and a log that was cut', async () => {
    const vm = await host.create();
    await host.startExec(vm.id, ['sh', '-c', 'sleep 0.5; echo late; exit 7'], {}, 'short');
    await host.startExec(vm.id, ['sh', '-c', COUNTER], { max_log_bytes: 10_000 }, 'cut');
    await sleep(300);
    await host.stop();
    await sleep(1_500);
    await host.start();
    expect(await host.endOf(vm.id, 'short')).toMatchObject({ state: 'exited', exit: { exit_code: 7 } });
    expect((await host.result(vm.id, 'short')).stdout.toString()).toBe('late\n');
    const cut = await host.endOf(vm.id, 'cut');
    expect(cut).toMatchObject({ state: 'exited', log_truncated: true, exit: { stdout_bytes: expected.stdout.length } });
    const { stdout, exited } = streamsOf(await host.log(vm.id, 'cut'));
    expect(exited).toBe(true);
    expect(stdout.length).toBeGreaterThan(5_000);
    expect(expected.stdout.startsWith(stdout.toString())).toBe(true);
    await host.destroy(vm.id);
  });

  it('starts a command that was written down and perhaps not told to the guest, once', async () => {
    const vm = await host.create();
    await host.startExec(vm.id, ['sh', '-c', 'echo told >> /workspace/ran; sleep 1'], {}, 'told');
    await host.stop();
    const execs = join(host.vmsDirectory, vm.id, 'execs');
    // As if the process had ended right after each of the two writes.
    const script = (name: string) => ['sh', '-c', `echo ${name} >> /workspace/ran; sleep 1`];
    for (const name of ['told', 'untold']) {
      const request = { argv: script(name), timeout_ms: 60_000, max_log_bytes: 1_000 };
      await mkdir(join(execs, name), { recursive: true });
      await rm(join(execs, name, 'frames'), { force: true });
      await writeFile(
        join(execs, name, 'exec.json'),
        JSON.stringify({
          id: name,
          state: 'running',
          request,
          ...request,
          asked_at_ms: Date.now(),
          log_truncated: false,
        }),
      );
    }
    await host.start();
    for (const name of ['told', 'untold'])
      expect(await host.endOf(vm.id, name)).toMatchObject({ state: 'exited', exit: { exit_code: 0 } });
    expect((await host.shell(vm.id, 'sort /workspace/ran')).stdout.toString()).toBe('told\nuntold\n');
    await host.destroy(vm.id);
  });

  it('says of a VM that ended meanwhile that it is dead, with its execs lost', async () => {
    const vm = await host.create();
    await host.startExec(vm.id, ['sleep', '600'], {}, 'long');
    await host.run(vm.id, ['echo', 'done'], {});
    await host.stop();
    process.kill(await pidOf(vm.id), 'SIGKILL');
    await host.start();
    expect(await host.call('GET', `/v1/vms/${vm.id}`)).toMatchObject({ state: 'dead' });
    expect(await host.call('GET', `/v1/vms/${vm.id}/execs/long`)).toMatchObject({ state: 'lost' });
    await host.stop();
    await host.start();
    expect(await host.call('GET', `/v1/vms/${vm.id}`)).toMatchObject({ state: 'dead' });
    expect((await host.destroy(vm.id)).destroyed).toBe(true);
  });

  it('removes what was never handed over, its VMM too', async () => {
    const vm = await host.create();
    const pid = await pidOf(vm.id);
    await host.stop();
    const record = join(host.vmsDirectory, vm.id, 'vm.json');
    await writeFile(record, (await readFile(record, 'utf8')).replace('"state":"running"', '"state":"starting"'));
    await mkdir(join(host.vmsDirectory, 'empty'));
    await host.start();
    await vi.waitFor(async () => {
      expect(await readdir(host.vmsDirectory)).toEqual([]);
      expect(await host.list()).toEqual({ vms: [] });
    }, 10_000);
    await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), 5_000);
  });

  it('leaves a VM alone whose record it cannot read, until that is destroyed by its id', async () => {
    const vm = await host.create();
    const pid = await pidOf(vm.id);
    await host.stop();
    await writeFile(join(host.vmsDirectory, vm.id, 'vm.json'), '{"of":"another version"}');
    await host.start();
    expect(await host.list()).toEqual({ vms: [] });
    process.kill(pid, 0);
    expect((await host.destroy(vm.id)).destroyed).toBe(true);
    await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), 5_000);
    await mkdir(join(host.vmsDirectory, 'unread'));
    await host.agent.destroyAllVms();
    expect(await readdir(host.vmsDirectory)).toEqual([]);
  });

  it('is not held up by a VMM that hangs', async () => {
    const [hung, other] = await Promise.all([host.create(), host.create()]);
    process.kill(await pidOf(hung.id), 'SIGSTOP');
    await host.stop();
    const from = performance.now();
    await host.start();
    expect(performance.now() - from).toBeLessThan(5_000);
    expect((await host.shell(other.id, 'echo fine')).stdout.toString()).toBe('fine\n');
    await Promise.all([host.destroy(hung.id), host.destroy(other.id)]);
    expect(await readdir(host.vmsDirectory)).toEqual([]);
  });
});
