import { createHash, randomBytes } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { newId, sleep } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { streamsOf, TestHost } from '../vms/test-host.ts';

let host: TestHost;
let vm: string;
beforeAll(async () => {
  host = await TestHost.open();
  vm = (await host.create()).id;
});
afterAll(() => host[Symbol.asyncDispose]());

const sum = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');
const logFile = (execId: string) => join(host.vmsDirectory, vm, 'execs', execId, 'frames');

describe('an exec', () => {
  it('ends with its code, its streams apart', async () => {
    const { exec, stdout, stderr, truncated } = await host.shell(vm, 'echo out; echo err >&2; exit 3');
    expect(exec).toMatchObject({
      state: 'exited',
      exit: { exit_code: 3, timed_out: false, stdout_bytes: 4, stderr_bytes: 4 },
    });
    expect([stdout.toString(), stderr.toString(), truncated]).toEqual(['out\n', 'err\n', false]);
  });

  it('is started once, however often it is asked for, and stays what it was', async () => {
    const id = newId('x');
    const starts = Array.from({ length: 10 }, () => host.startExec(vm, ['sh', '-c', 'echo once >> /tmp/once'], {}, id));
    await Promise.all(starts);
    await host.endOf(vm, id);
    expect(await host.startExec(vm, ['sh', '-c', 'echo other >> /tmp/once'], {}, id)).toMatchObject({
      state: 'exited',
    });
    expect((await host.shell(vm, 'cat /tmp/once')).stdout.toString()).toBe('once\n');
  });

  it('that cannot be started is an error with a reason, and leaves no trace', async () => {
    const id = newId('x');
    for (const argv of [['no-such-program'], ['/etc/passwd'], ['/']])
      await expect(host.startExec(vm, argv, {}, id)).rejects.toMatchObject({
        status: 400,
        code: 'invalid_argument',
        details: { reason: 'exec_failed' },
      });
    await expect(host.call('GET', `/v1/vms/${vm}/execs/${id}`)).rejects.toMatchObject({ status: 404 });
    expect(await readdir(join(host.vmsDirectory, vm, 'execs'))).not.toContain(id);
    await expect(host.startExec(vm, ['true'], { env: { LARGE: 'x'.repeat(1_100_000) } }, id)).rejects.toMatchObject({
      status: 400,
    });
    // The id is still free.
    await host.startExec(vm, ['true'], {}, id);
    expect(await host.endOf(vm, id)).toMatchObject({ state: 'exited' });
  });

  it('is not written down with its secrets once it runs', async () => {
    const { id } = await host.startExec(vm, ['sleep', '5'], { env: { SECRET: 'hunter2' } });
    await vi.waitFor(async () => {
      const record = await readFile(join(host.vmsDirectory, vm, 'execs', id, 'exec.json'), 'utf8');
      expect(record).not.toContain('hunter2');
    });
    await host.call('DELETE', `/v1/vms/${vm}/execs/${id}`);
  });

  it('returns while a child that it left in the background runs on, and DELETE ends that too', async () => {
    const from = performance.now();
    const { exec, stdout } = await host.shell(
      vm,
      'setsid sh -c "echo $$ > /tmp/child; sleep 600" & sleep 0.2; echo done',
    );
    expect(performance.now() - from).toBeLessThan(10_000);
    expect(stdout.toString()).toBe('done\n');
    const alive = () => host.shell(vm, 'pgrep -x sleep | wc -l').then((result) => Number(result.stdout.toString()));
    expect(await alive()).toBe(1);
    await host.call('DELETE', `/v1/vms/${vm}/execs/${exec.id}`);
    expect(await alive()).toBe(0);
    expect(await host.call('GET', `/v1/vms/${vm}/execs/${exec.id}`)).toMatchObject({
      state: 'exited',
      exit: { exit_code: 0 },
    });
  });

  it('is killed with its whole tree when asked, at its time limit too', async () => {
    const tree = 'echo up; (setsid sleep 601 &); sleep 602';
    const { id } = await host.startExec(vm, ['sh', '-c', tree]);
    await vi.waitFor(async () => expect((await host.log(vm, id)).toString()).toContain('up'), 10_000);
    await host.call('DELETE', `/v1/vms/${vm}/execs/${id}`);
    expect(await host.endOf(vm, id)).toMatchObject({ state: 'exited', exit: { exit_code: 137, timed_out: false } });

    const { exec, stdout } = await host.shell(vm, tree, { timeout_ms: 1_500 });
    expect(exec).toMatchObject({ state: 'exited', exit: { exit_code: 137, timed_out: true } });
    expect(stdout.toString()).toBe('up\n');
    expect((await host.shell(vm, 'pgrep -c -x sleep')).stdout.toString()).toBe('0\n');
  });

  it('answers a long poll at its end, or in time', async () => {
    const { id } = await host.startExec(vm, ['sleep', '1.5']);
    const from = performance.now();
    expect(await host.call('GET', `/v1/vms/${vm}/execs/${id}?wait_ms=200`)).toMatchObject({ state: 'running' });
    expect(performance.now() - from).toBeLessThan(1_200);
    expect(await host.call('GET', `/v1/vms/${vm}/execs/${id}?wait_ms=60000`)).toMatchObject({ state: 'exited' });
    await expect(host.call('GET', `/v1/vms/${vm}/execs/none?wait_ms=100`)).rejects.toMatchObject({ status: 404 });
  });
});

describe('output', () => {
  it('arrives byte for byte: a megabyte of CJK, random bytes on both streams', async () => {
    const cjk = '漢字かな交じり文。'.repeat(40_000);
    const noise = randomBytes(700_000);
    const [text, bytes] = await Promise.all([host.putObject('cjk', Buffer.from(cjk)), host.putObject('noise', noise)]);
    const files = [
      { path: '/tmp/cjk', object_key: text },
      { path: '/tmp/noise', object_key: bytes },
    ];
    await host.call('PUT', `/v1/vms/${vm}/files`, { files });
    const { id } = await host.startExec(vm, ['sh', '-c', 'cat /tmp/noise >&2 & cat /tmp/cjk; wait']);
    await host.endOf(vm, id);
    const { stdout, stderr } = streamsOf(await host.log(vm, id));
    expect(sum(stdout)).toBe(sum(cjk));
    expect(sum(stderr)).toBe(sum(noise));
  });

  it('can be followed as it comes, from any point, to the end', async () => {
    const { id } = await host.startExec(vm, ['sh', '-c', 'for i in 1 2 3; do echo $i; sleep 0.3; done']);
    const whole = await host.log(vm, id, { follow: true });
    expect(streamsOf(whole)).toMatchObject({ exited: true });
    expect(streamsOf(whole).stdout.toString()).toBe('1\n2\n3\n');
    expect((await host.log(vm, id, { follow: true, offset: 10 })).equals(whole.subarray(10))).toBe(true);
    expect((await host.log(vm, id, { offset: whole.length })).length).toBe(0);
    await expect(host.call('GET', `/v1/vms/${vm}/execs/${id}/log?offset=${whole.length + 1}`)).rejects.toMatchObject({
      status: 400,
    });
  });

  it('without end is bounded on disk, counted whole, and does not disturb the next exec', async () => {
    const limit = 1_000_000;
    const { id } = await host.startExec(vm, ['yes'], { timeout_ms: 4_000, max_log_bytes: limit });
    const exec = await host.endOf(vm, id);
    expect(exec).toMatchObject({ state: 'exited', log_truncated: true, exit: { timed_out: true } });
    expect(exec.exit?.stdout_bytes).toBeGreaterThan(2 * limit);
    const { size } = await stat(logFile(id));
    expect(size).toBe(exec.log_bytes);
    expect(size).toBeLessThan(limit + 1_000);
    const { stdout, exited } = streamsOf(await host.log(vm, id, { follow: true }));
    expect(exited).toBe(true);
    expect(stdout.toString()).toBe('y\n'.repeat(stdout.length / 2 + 1).slice(0, stdout.length));
    expect((await host.result(vm, id, 100)).stdout.length).toBe(100);
    expect((await host.shell(vm, 'echo next')).stdout.toString()).toBe('next\n');
  });

  it('is not held up by readers that stall, nor is the end of the host agent or the VM', async () => {
    const other = (await host.create()).id;
    const { id } = await host.startExec(other, ['sh', '-c', 'head -c 20000000 /dev/zero'], {
      max_log_bytes: 30_000_000,
    });
    const before = process.memoryUsage().rss;
    const stalled = Array.from({ length: 20 }, () => {
      const call = request(`${host.url}/v1/vms/${other}/execs/${id}/log?follow=1`, {
        headers: { authorization: 'Bearer token-of-the-test-host' },
      });
      call.on('response', (response) => response.pause());
      call.on('error', () => {});
      call.end();
      return call;
    });
    expect(await host.endOf(other, id)).toMatchObject({ state: 'exited', exit: { stdout_bytes: 20_000_000 } });
    expect(process.memoryUsage().rss - before).toBeLessThan(150 * 1024 * 1024);
    const from = performance.now();
    await host.stop();
    expect(performance.now() - from).toBeLessThan(4_000);
    await host.start();
    expect(await host.call('GET', `/v1/vms/${other}/execs/${id}`)).toMatchObject({ state: 'exited' });
    expect((await host.destroy(other)).destroyed).toBe(true);
    for (const call of stalled) call.destroy();
  });
});

describe('stdin', () => {
  it('arrives whole, then ends', async () => {
    const bytes = randomBytes(10 * 1024 * 1024);
    const { stdout } = await host.run(vm, ['sha256sum'], { stdin_object_key: await host.putObject('stdin', bytes) });
    expect(stdout.toString()).toContain(sum(bytes));
  });

  it('is at its end when there is none', async () => {
    expect((await host.run(vm, ['cat'])).exec).toMatchObject({ exit: { exit_code: 0, stdout_bytes: 0 } });
    const empty = await host.putObject('empty', Buffer.alloc(0));
    expect((await host.run(vm, ['cat'], { stdin_object_key: empty })).exec).toMatchObject({ exit: { exit_code: 0 } });
  });

  it('may be left unread', async () => {
    const key = await host.putObject('stdin', randomBytes(5_000_000));
    expect((await host.run(vm, ['true'], { stdin_object_key: key })).exec).toMatchObject({ exit: { exit_code: 0 } });
    const { exec } = await host.run(vm, ['sh', '-c', 'sleep 1; head -c 3000000 /dev/zero'], { stdin_object_key: key });
    expect(exec).toMatchObject({ exit: { exit_code: 0, stdout_bytes: 3_000_000 } });
  });

  it('that is not in the store fails the start', async () => {
    await expect(host.startExec(vm, ['cat'], { stdin_object_key: 'no/such' })).rejects.toMatchObject({ status: 404 });
  });
});

describe('the guest agent', () => {
  it('goes on serving after many commands that were cancelled at any moment', async () => {
    for (let round = 0; round < 40; round++) {
      const { id } = await host.startExec(vm, ['sh', '-c', 'sleep 30 & yes | head -c 100000; sleep 30']);
      await sleep(round % 7);
      await host.call('DELETE', `/v1/vms/${vm}/execs/${id}`);
      expect(await host.endOf(vm, id)).toMatchObject({ state: 'exited' });
    }
    expect((await host.shell(vm, 'pgrep -c -x "sleep|yes"')).stdout.toString()).toBe('0\n');
  });
});
