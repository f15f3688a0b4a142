import { readdir } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { streamsOf, TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

const COUNTER = 'i=0; while [ $i -lt 200 ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done';
const counted = Array.from({ length: 200 }, (_, i) => `line ${i}\n`).join('');

describe('a paused VM', () => {
  it('holds no VMM, and goes on where it was', async () => {
    const vm = await host.create();
    await host.shell(vm.id, 'echo kept > /workspace/file; echo kept > /tmp/file; sleep 1000 & echo $! > /tmp/pid');
    const pid = await host.vmmPid(vm.id);
    const { id } = await host.startExec(vm.id, ['sh', '-c', COUNTER]);
    expect(await host.pause(vm.id)).toMatchObject({ state: 'paused' });
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
    await expect(host.startExec(vm.id, ['true'])).rejects.toMatchObject({
      status: 409,
      code: 'conflict',
      details: { state: 'paused' },
    });
    expect(await host.call('GET', `/v1/vms/${vm.id}/execs/${id}`)).toMatchObject({ state: 'running' });
    expect(await host.resume(vm.id)).toMatchObject({ state: 'running', created_at: vm.created_at });
    const { stdout } = await host.shell(vm.id, 'cat /workspace/file /tmp/file; kill -0 $(cat /tmp/pid) && echo alive');
    expect(stdout.toString()).toBe('kept\nkept\nalive\n');
    expect(await host.endOf(vm.id, id)).toMatchObject({ state: 'exited', exit: { exit_code: 0 } });
    expect(streamsOf(await host.log(vm.id, id)).stdout.toString()).toBe(counted);
    expect((await readdir(`${host.vmsDirectory}/${vm.id}`)).sort()).toEqual(['execs', 'machine-2', 'vm.json']);
    await host.destroy(vm.id);
  });
});
