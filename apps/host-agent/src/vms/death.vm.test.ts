import { readdir, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

const vmmPid = (id: string) => host.vmmPid(id);

const deaths: [string, (id: string) => Promise<unknown>][] = [
  ['its VMM is killed', async (id) => process.kill(await vmmPid(id), 'SIGKILL')],
  ['its kernel panics', (id) => host.startExec(id, ['sh', '-c', 'echo c > /proc/sysrq-trigger'])],
  ['it is switched off', (id) => host.startExec(id, ['sh', '-c', 'echo o > /proc/sysrq-trigger'])],
];

describe('when a VM dies', () => {
  it.each(deaths)('because %s, its execs are lost and it is dead within 5 s', async (_why, kill) => {
    const { id } = await host.create();
    const exec = await host.startExec(id, ['sh', '-c', 'echo before; sleep 600'], {}, 'long');
    const following = host.log(id, exec.id, { follow: true });
    following.catch(() => {});
    const waiting = host.endOf(id, exec.id);
    await vi.waitFor(async () => expect((await host.log(id, exec.id)).toString()).toContain('before'), 10_000);

    const from = performance.now();
    const killing = kill(id).catch((error: { code: string }) => error.code);
    const ended = await waiting;
    expect(performance.now() - from).toBeLessThan(5_000);
    expect(ended).toMatchObject({ id: 'long', state: 'lost' });
    expect(ended.exit).toBeUndefined();
    await killing;
    expect(await host.call('GET', `/v1/vms/${id}`)).toMatchObject({ state: 'dead', error: expect.stringMatching(/./) });
    await expect(following).rejects.toThrow(); // a cut stream is no end

    // What was printed until then can still be had, and nothing else.
    expect((await host.result(id, 'long')).stdout.toString()).toBe('before\n');
    expect((await host.result(id, 'long')).truncated).toBe(true);
    await expect(host.startExec(id, ['true'])).rejects.toMatchObject({ status: 502, code: 'vm_lost' });
    await expect(host.collect(id, { globs: ['*'] })).rejects.toMatchObject({ status: 502, code: 'vm_lost' });
    const { outputs, frames_object_key } = await host.collect(id, { exec_id: 'long' });
    expect(outputs).toMatchObject([{ path: '.fuse/stdout.log', size_bytes: 7 }]);
    expect(frames_object_key).toBeDefined();
    // It is never silently replaced.
    expect(await host.create({}, id)).toMatchObject({ state: 'dead' });
    expect((await host.destroy(id)).destroyed).toBe(true);
    expect(await readdir(host.vmsDirectory)).toEqual([]);
  });

  it('fails what is under way there as lost', async () => {
    const { id } = await host.create();
    await host.shell(id, 'head -c 200000000 /dev/zero > /workspace/large');
    const collecting = host.collect(id, { globs: ['large'] });
    collecting.catch(() => {});
    setTimeout(async () => process.kill(await vmmPid(id), 'SIGKILL'), 200);
    await expect(collecting).rejects.toMatchObject({ code: 'vm_lost' });
    await host.destroy(id);
  });
});

describe('a VMM that makes its disk longer', () => {
  it.each([
    ['paused', (id: string) => host.pause(id)],
    ['kept', (id: string) => host.snapshot(id)],
    ['kept without memory', (id: string) => host.snapshot(id, { include_memory: false })],
  ])('is ended in place of being %s, and nothing is kept', async (_what, keep) => {
    const { id } = await host.create();
    const disk = join(await host.machineDirectory(id), 'writable.img');
    await truncate(disk, (await stat(disk)).size + 4_096);
    await expect(keep(id)).rejects.toMatchObject({ status: 502, code: 'vm_lost' });
    const error = expect.stringContaining('tampered with its disk');
    expect(await host.call('GET', `/v1/vms/${id}`)).toMatchObject({ state: 'dead', error });
    expect(await readdir(host.snapshotsDirectory)).toEqual([]);
    await host.destroy(id);
  });
});

describe('a VMM that hangs', () => {
  it('holds up neither the list nor the others, and can be destroyed', async () => {
    const [hung, other] = await Promise.all([host.create(), host.create()]);
    process.kill(await vmmPid(hung.id), 'SIGSTOP');
    const stuck = host.startExec(hung.id, ['true']).catch((error: { code: string }) => error.code);
    const from = performance.now();
    expect((await host.list()).vms.length).toBe(2);
    expect((await host.shell(other.id, 'echo fine')).stdout.toString()).toBe('fine\n');
    expect(performance.now() - from).toBeLessThan(5_000);
    expect((await host.destroy(hung.id)).destroyed).toBe(true);
    expect(await stuck).toBe('vm_lost');
    await host.destroy(other.id);
    expect(await readdir(host.vmsDirectory)).toEqual([]);
  });

  it('is given up, with its execs, within 30 s', async () => {
    const { id } = await host.create();
    await host.startExec(id, ['sleep', '600'], {}, 'long');
    const pid = await vmmPid(id);
    process.kill(pid, 'SIGSTOP');
    const from = performance.now();
    expect(await host.endOf(id, 'long')).toMatchObject({ state: 'lost' });
    expect(performance.now() - from).toBeLessThan(30_000);
    expect(await host.call('GET', `/v1/vms/${id}`)).toMatchObject({ state: 'dead' });
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
    await host.destroy(id);
  });
});
