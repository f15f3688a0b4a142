import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { sleep } from '@fuse/runtime';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { streamsOf, TestHost } from './vms/test-host.ts';
import { PROGRAM_PATH, TestProgram } from './vms/test-program.ts';

let host: TestHost;
let program: TestProgram;
beforeAll(async () => {
  host = await TestHost.open();
  await host.stop();
  program = new TestProgram(host);
});
afterEach(() => program.kill());
afterAll(() => host[Symbol.asyncDispose]());

describe('the program', () => {
  it('killed at any moment loses no VM and no byte of a running command', async () => {
    let running = await program.start();
    const vm = await host.create();
    const script = 'i=0; while [ $i -lt 5000 ]; do echo "line $i"; i=$((i+1)); done';
    const { id } = await host.startExec(vm.id, ['sh', '-c', script]);
    for (let round = 0; round < 4; round++) {
      await sleep(100 + 170 * round);
      running.kill('SIGKILL');
      await once(running, 'exit');
      running = await program.start();
    }
    expect(await host.endOf(vm.id, id)).toMatchObject({ state: 'exited', exit: { exit_code: 0 } });
    const { stdout, exited } = streamsOf(await host.log(vm.id, id));
    expect(exited).toBe(true);
    expect(stdout.toString()).toBe(Array.from({ length: 5_000 }, (_, i) => `line ${i}\n`).join(''));
    expect((await host.destroy(vm.id)).destroyed).toBe(true);
    running.kill('SIGTERM');
    expect(await once(running, 'exit')).toEqual([0, null]);
  });

  it('ends at SIGTERM within seconds, whoever waits, and its VMs run on', async () => {
    const running = await program.start();
    const vm = await host.create();
    await host.startExec(vm.id, ['sleep', '600'], {}, 'long');
    const waiting = host.call('GET', `/v1/vms/${vm.id}/execs/long?wait_ms=60000`);
    const following = host.log(vm.id, 'long', { follow: true });
    following.catch(() => {});
    await sleep(200);
    const from = performance.now();
    running.kill('SIGTERM');
    expect(await once(running, 'exit')).toEqual([0, null]);
    expect(performance.now() - from).toBeLessThan(6_000);
    expect(await waiting).toMatchObject({ state: 'running' });
    await expect(following).rejects.toThrow();
    const again = await program.start();
    expect(await host.call('GET', `/v1/vms/${vm.id}/execs/long`)).toMatchObject({ state: 'running' });
    await host.destroy(vm.id);
    again.kill('SIGTERM');
    expect(await once(again, 'exit')).toEqual([0, null]);
  });

  it('says what is wrong with its configuration', async () => {
    const wrong = { ...host.environment, FUSE_HOST_CPUS: 'many', FUSE_HOST_TOKEN: '' };
    const started = spawn(process.execPath, [PROGRAM_PATH], { env: wrong, stdio: ['ignore', 'ignore', 'pipe'] });
    const errors = started.stderr.toArray();
    expect(await once(started, 'exit')).toEqual([1, null]);
    const text = Buffer.concat(await errors).toString();
    expect(text).toContain('FUSE_HOST_CPUS: must be a whole number above 0');
    expect(text).toContain('FUSE_HOST_TOKEN');
  });
});
