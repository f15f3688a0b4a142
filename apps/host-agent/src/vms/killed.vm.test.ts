/** The host agent, or a VMM, killed in the middle of whatever it does: what is said afterwards is true, and nothing is left behind. */
import { readdir, readFile } from 'node:fs/promises';
import type { HostSnapshot } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TestHost } from './test-host.ts';
import { TestProgram } from './test-program.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

const SET_UP = 'echo disk > /workspace/file; echo memory > /run/file; sleep 10000 & echo $! > /tmp/pid';
const LOOK = 'cat /workspace/file /run/file; kill -0 $(cat /tmp/pid) && echo alive';
const WHOLE = 'disk\nmemory\nalive\n';
/** Of one operation, from its first moment to after its end. */
const MOMENTS_MS = [5, 30, 70, 120, 200, 400];

const stateOf = async (id: string) => (await host.list()).vms.find((vm) => vm.id === id)?.state;
const unawaited = (work: Promise<unknown>) => work.catch(() => {});

/** Running again, however it was left. */
async function expectWhole(id: string): Promise<void> {
  if ((await stateOf(id)) === 'paused') await host.resume(id);
  expect(await stateOf(id)).toBe('running');
  expect((await host.shell(id, LOOK)).stdout.toString()).toBe(WHOLE);
  const machines = (await readdir(`${host.vmsDirectory}/${id}`)).filter((name) => name.startsWith('machine-'));
  expect(machines).toHaveLength(1);
}

describe('a host agent that is killed', () => {
  let program: TestProgram;
  let vm: string;
  beforeAll(async () => {
    await host.stop();
    program = new TestProgram(host);
    await program.start();
    vm = (await host.create()).id;
    await host.shell(vm, SET_UP);
  });
  afterAll(async () => {
    await host.destroy(vm);
    await program.kill();
    await host.start();
    host.useUrl(host.agent.url);
  });

  async function killedAfter(momentMs: number, operation: () => Promise<unknown>): Promise<void> {
    unawaited(operation());
    await sleep(momentMs);
    await program.kill();
    await program.start();
  }

  it.each(MOMENTS_MS)('%i ms into a pause: it runs on, or is paused', async (momentMs) => {
    await killedAfter(momentMs, () => host.pause(vm));
    expect(['running', 'paused']).toContain(await stateOf(vm));
    await expectWhole(vm);
  });

  it.each(MOMENTS_MS)('%i ms into a resume: it is paused, or runs', async (momentMs) => {
    await host.pause(vm);
    await killedAfter(momentMs, () => host.resume(vm));
    expect(['running', 'paused']).toContain(await stateOf(vm));
    await expectWhole(vm);
  });

  it.each(MOMENTS_MS)('%i ms into a snapshot: it runs on, the snapshot is whole or gone', async (momentMs) => {
    const id = `snap-${momentMs}`;
    await killedAfter(momentMs, () => host.snapshot(vm, {}, id));
    expect(await stateOf(vm)).toBe('running');
    await expectWhole(vm);
    const { snapshots } = await host.call<{ snapshots: HostSnapshot[] }>('GET', '/v1/snapshots');
    const names = (await readdir(host.snapshotsDirectory)).filter((name) => name.includes(id));
    expect(names).toEqual(snapshots.filter((snapshot) => snapshot.id === id).map((snapshot) => snapshot.id));
    if (names.length === 0) return;
    expect(await host.call('GET', `/v1/snapshots/${id}?wait_ms=30000`)).toMatchObject({ state: 'durable' });
    const fork = await host.fork(id);
    await expectWhole(fork.id);
    await host.destroy(fork.id);
    await host.deleteSnapshot(id);
  });

  it.each(MOMENTS_MS)('%i ms into a restore in place: it is as it was, restored, or dead', async (momentMs) => {
    const { id } = await host.snapshot(vm);
    const restore = { snapshot_id: id, restore_id: `restore-${momentMs}` };
    await killedAfter(momentMs, () => host.restore(vm, restore));
    expect(['running', 'dead']).toContain(await stateOf(vm));
    expect(await host.restore(vm, restore)).toMatchObject({ state: 'running', restore_id: restore.restore_id });
    await expectWhole(vm);
    await host.deleteSnapshot(id);
  });
});

describe('a VMM that is killed', () => {
  async function killedAfter(id: string, momentMs: number, operation: () => Promise<unknown>): Promise<void> {
    const done = unawaited(operation());
    await sleep(momentMs);
    await host
      .vmmPid(id)
      .then((pid) => process.kill(pid, 'SIGKILL'))
      .catch(() => {}); // it may be gone already
    await done;
  }

  it.each(MOMENTS_MS)('%i ms into a pause: the VM is dead, or paused and whole', async (momentMs) => {
    const { id } = await host.create();
    await host.shell(id, SET_UP);
    await killedAfter(id, momentMs, () => host.pause(id));
    await vi.waitFor(async () => expect(['dead', 'paused']).toContain(await stateOf(id)), 5_000);
    if ((await stateOf(id)) === 'paused') await expectWhole(id);
    await host.destroy(id);
  });

  it.each(MOMENTS_MS)('%i ms into a snapshot: the VM is dead, the snapshot whole or gone', async (momentMs) => {
    const { id } = await host.create();
    await host.shell(id, SET_UP);
    await killedAfter(id, momentMs, () => host.snapshot(id, {}, id));
    await vi.waitFor(async () => expect(await stateOf(id)).toBe('dead'), 5_000);
    await host.destroy(id);
    if ((await readdir(host.snapshotsDirectory)).length > 0) {
      const fork = await host.fork(id);
      await expectWhole(fork.id);
      await host.destroy(fork.id);
      await host.deleteSnapshot(id);
    }
    expect(await readdir(host.snapshotsDirectory)).toEqual([]);
  });

  it.each(MOMENTS_MS)('%i ms into a resume: the VM stays paused, or it ran and is dead', async (momentMs) => {
    const { id } = await host.create();
    await host.shell(id, SET_UP);
    await host.pause(id);
    const done = unawaited(host.resume(id));
    await sleep(momentMs);
    const killed = await killNewest(id);
    await done;
    await noticed(id, killed);
    if ((await stateOf(id)) !== 'dead') await expectWhole(id);
    await host.destroy(id);
  });

  it.each(MOMENTS_MS)('%i ms into a restore in place: the VM is dead, or was not restored yet', async (momentMs) => {
    const { id } = await host.create();
    await host.shell(id, SET_UP);
    await host.snapshot(id, {}, id);
    const restore = { snapshot_id: id, restore_id: 'one' };
    const done = unawaited(host.restore(id, restore));
    await sleep(momentMs);
    const killed = await killNewest(id);
    await done;
    await noticed(id, killed);
    // One that was done and died afterwards is not done again under its id.
    if ((await stateOf(id)) === 'dead') await host.restore(id, { ...restore, restore_id: 'two' });
    await expectWhole(id);
    await host.destroy(id);
    await host.deleteSnapshot(id);
  });

  /** The VMM of the machine that was begun last, if there is one. */
  async function killNewest(id: string): Promise<number | undefined> {
    const entries = await readdir(`${host.vmsDirectory}/${id}`);
    const newest = entries
      .filter((name) => name.startsWith('machine-'))
      .sort()
      .at(-1);
    const text = await readFile(`${host.vmsDirectory}/${id}/${newest}/vmm.json`, 'utf8').catch(() => undefined);
    if (text === undefined) return undefined;
    const { pid } = JSON.parse(text) as { pid: number };
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It is gone already.
    }
    return pid;
  }

  /** An operation may be over before its VMM's end is known. */
  const noticed = (id: string, killed: number | undefined) =>
    vi.waitFor(async () => {
      const state = await stateOf(id);
      expect(['paused', 'running', 'dead']).toContain(state);
      if (state === 'running') expect(await host.vmmPid(id)).not.toBe(killed);
    }, 5_000);
});

describe('a VM that is destroyed', () => {
  it.each(MOMENTS_MS)('%i ms into a snapshot or a restore is gone with every trace', async (momentMs) => {
    const [one, other] = await Promise.all([host.create(), host.create()]);
    const { id } = await host.snapshot(one.id);
    const works = [
      unawaited(host.restore(one.id, { snapshot_id: id, restore_id: 'one' })),
      unawaited(host.snapshot(other.id, {}, 'other')),
    ];
    await sleep(momentMs);
    for (const { destroyed } of await Promise.all([host.destroy(one.id), host.destroy(other.id)]))
      expect(destroyed).toBe(true);
    await Promise.all(works);
    expect(await readdir(host.vmsDirectory)).toEqual([]);
    await host.deleteSnapshot(id);
    await host.deleteSnapshot('other');
    expect(await readdir(host.snapshotsDirectory)).toEqual([]);
  });
});
