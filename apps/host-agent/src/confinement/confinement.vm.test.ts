/** What confines a VMM, seen from outside in /proc, and from inside by a program that tries to get out. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { readdir, readFile, rm, symlink } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { newId } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lock } from '../templates/process-lock.ts';
import { TestHost } from '../vms/test-host.ts';
import { TestProgram } from '../vms/test-program.ts';
import type { Cgroup } from './cgroup.ts';
import { hostHierarchies } from './hierarchies.ts';
import { type AttackTargets, attackScript } from './test-attack.ts';
import { ConfinedVmm, identityOf, runInJailOf } from './test-confined-vmm.ts';

const UIDS = '/run/fuse/vmm-uids';
const MIB = 1_048_576;
const NAMESPACES = ['mnt', 'pid', 'ipc', 'uts', 'net'];

let host: TestHost;
let one: ConfinedVmm;
let other: ConfinedVmm;
let oneId: string;
let otherId: string;
let oneDirectory: string;
let imagePath: string;

beforeAll(async () => {
  host = await TestHost.open({ confinement: { mode: 'required', uidBase: 870_000 } });
  [oneId, otherId] = (await Promise.all([host.create(), host.create()])).map(({ id }) => id) as [string, string];
  one = new ConfinedVmm(await host.vmmPid(oneId));
  other = new ConfinedVmm(await host.vmmPid(otherId));
  oneDirectory = await host.machineDirectory(oneId);
  const manifest = JSON.parse(await readFile(join(host.directory, 'assets', 'manifest.json'), 'utf8'));
  imagePath = manifest.images.find(({ name }: { name: string }) => name === 'base').path;
});
afterAll(() => host?.[Symbol.asyncDispose]());

/** Without threads of the kernel: KVM has one in the group of each VM. */
const processesIn = ({ pids }: Cgroup) => pids.filter((pid) => readFileSync(`/proc/${pid}/cmdline`).length > 0);

const limitFiles = (vmm: ConfinedVmm) => vmm.cgroup.procsPaths.map((path) => join(path, '..'));

async function limitOf(vmm: ConfinedVmm, ...names: string[]): Promise<string> {
  for (const directory of limitFiles(vmm))
    for (const name of names)
      if (existsSync(join(directory, name))) return (await readFile(join(directory, name), 'utf8')).trim();
  throw new Error(`there is no ${names}`);
}

describe('the VMM of a running VM', () => {
  it('is a user of its own, of no group but its own', () => {
    for (const vmm of [one, other]) {
      const all = Array(4).fill(vmm.uid).join('\t');
      expect(vmm.uid).toBeGreaterThanOrEqual(870_000);
      expect(vmm.status('Uid')).toBe(all);
      expect(vmm.status('Gid')).toBe(all);
      expect(vmm.status('Groups')).toBe('');
    }
    expect(one.uid).not.toBe(other.uid);
  });

  it('has no capabilities, can get none, and its system calls are filtered', () => {
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) expect(one.status(set)).toMatch(/^0{16}$/);
    expect(one.status('NoNewPrivs')).toBe('1');
    expect(one.status('Seccomp')).toBe('2');
    expect(Number(one.status('Seccomp_filters'))).toBeGreaterThanOrEqual(2); // the jail's, and QEMU's own
  });

  it.each(NAMESPACES)('shares its %s namespace with neither the host nor another VM', (kind) => {
    const host = new ConfinedVmm(process.pid);
    expect(new Set([one, other, host].map((each) => each.namespace(kind))).size).toBe(3);
  });

  it('has a network without any card', async () => {
    const lines = one.read('net/dev').split('\n').slice(2);
    expect(lines.map((line) => line.split(':')[0]?.trim()).filter((name) => name !== '')).toEqual(['lo']);
    expect(one.read('net/route').trim().split('\n')).toHaveLength(1);
  });

  it('is in a control group of its own in each hierarchy, within the limits of its shape', async () => {
    const groups = one.read('cgroup').split('\n');
    const ours = groups.filter((line) => line.endsWith(`:/fuse/vmm-${one.uid}`));
    expect(ours).toHaveLength(hostHierarchies().length);
    expect(processesIn(one.cgroup)).toEqual([one.pid]);
    const memory = Number(await limitOf(one, 'memory.max', 'memory.limit_in_bytes'));
    expect(memory).toBeGreaterThanOrEqual((256 + 256) * MIB);
    expect(memory).toBeLessThanOrEqual((256 + 448) * MIB);
    expect(await limitOf(one, 'cpu.max', 'cpu.cfs_quota_us')).toMatch(/^150000( 100000)?$/);
    expect(await limitOf(one, 'pids.max')).toBe('97');
    expect(one.cgroup.usage().memoryBytes).toBeLessThan(memory);
  });

  it('has bounded descriptors and file size, and dumps no core', () => {
    const limits = one.read('limits');
    expect(limits).toMatch(/^Max open files +256 +256 /m);
    expect(limits).toMatch(new RegExp(`^Max file size +${1024 * MIB} +${1024 * MIB} `, 'm'));
    expect(limits).toMatch(/^Max core file size +0 +0 /m);
  });

  it('sees its own files and QEMU, and may write its disk and its run directory alone', async () => {
    expect(one.mounts).toEqual({
      ...{ '/': 'ro', '/vm': 'ro', '/vm/run': 'rw' },
      ...{ '/image': 'ro', '/memory': 'ro', '/disk': 'rw' },
    });
    expect(one.list('/').filter((name) => !name.startsWith('lib'))).toEqual(
      ['dev', 'disk', 'image', 'initramfs', 'kernel', 'memory', 'sys', 'usr', 'vm'].sort(),
    );
    expect(one.list('/dev').filter((name) => name !== 'kvm')).toEqual(['null', 'random', 'urandom', 'vfio', 'zero']);
    expect(one.list('/sys').concat(one.list('/dev/vfio'))).toEqual([]);
    expect(one.list('/usr/bin')).toEqual(['qemu-system-x86_64']);
    expect(one.list('/vm/run')).toEqual(['guest.sock', 'qmp.sock']);
  });

  it('has nothing open but that', async () => {
    const file = (name: string) => identityOf(join(oneDirectory, name));
    const files = one.descriptors.filter(({ what }) => what.startsWith('file'));
    expect(
      files
        .filter(({ writable }) => writable)
        .map(({ what }) => what)
        .sort(),
    ).toEqual([file('vmm.log'), file('vmm.log'), file('writable.img')].sort());
    // The last is the device state that it was restored from.
    const readOnly = new Set(files.filter(({ writable }) => !writable).map(({ what }) => what));
    for (const what of readOnly)
      expect([file('memory'), identityOf(imagePath), ...(await deviceStates())]).toContain(what);
    const kinds = new Set(one.descriptors.map(({ what }) => what).filter((what) => !what.startsWith('file')));
    for (const kind of kinds)
      expect(kind).toMatch(/^(device \d+|socket:|anon_inode:\[?(eventfd|signalfd|eventpoll|kvm-vm|kvm-vcpu:\d+)\]?)$/);
  });
});

async function deviceStates(): Promise<string[]> {
  const templates = join(host.vmsDirectory, '..', 'templates');
  const names = await readdir(templates);
  return names
    .map((name) => join(templates, name, 'device'))
    .filter(existsSync)
    .map(identityOf);
}

describe('a program in the jail of a VMM, with its user', () => {
  let lines: Map<string, string>;
  beforeAll(async () => {
    const abstractName = newId('test');
    await using _held = await lock(abstractName);
    const hostAddresses = Object.values(networkInterfaces()).flatMap((all) =>
      (all ?? []).map(({ address }) => address),
    );
    const targets: AttackTargets = {
      otherDirectory: await host.machineDirectory(otherId),
      otherPid: other.pid,
      dataDirectory: join(host.vmsDirectory, '..'),
      otherRecord: join(host.vmsDirectory, otherId, 'vm.json'),
      hostAgentPort: Number(new URL(host.url).port),
      hostAddresses: hostAddresses.filter((address) => !address.startsWith('fe80')),
      abstractName,
    };
    const rootsDirectory = join(host.directory, 'attack-root');
    const script = attackScript(targets);
    const output = await runInJailOf(one, { machineDirectory: oneDirectory, imagePath, rootsDirectory, script });
    lines = new Map(
      output
        .trim()
        .split('\n')
        .map((line) => line.split(/: (.*)/s, 2) as [string, string]),
    );
  });

  it('is refused whatever it tries', () => {
    expect(lines.size).toBeGreaterThan(40);
    expect(Object.fromEntries([...lines].filter(([, result]) => result.startsWith('DONE')))).toEqual({});
  });

  it('is refused for the reason that it should be', () => {
    const reasonOf = (name: string) => lines.get(name);
    expect(reasonOf('connect to its run/qmp.sock')).toBe('ENOENT');
    expect(reasonOf('read its memory')).toBe('ENOENT');
    expect(reasonOf('signal its process')).toBe('ESRCH');
    expect(reasonOf('read a record of the host agent')).toBe('ENOENT');
    expect(reasonOf('write shared memory, opened for both')).toBe('EACCES');
    expect(reasonOf('write the image')).toBe('EACCES');
    expect(reasonOf('list its machine')).toBe('EACCES');
    expect(reasonOf('link its disk into its run directory')).toBe('EXDEV');
    expect(reasonOf('connect to the host agent at 127.0.0.1')).toBe('EAFNOSUPPORT');
    expect(reasonOf('connect to a name of the host')).toBe('ECONNREFUSED');
    expect(reasonOf('become root')).toBe('EPERM');
    expect(reasonOf('remove what it has written')).toBe('ENOENT');
    expect(reasonOf('run a program of its own')).toBe('EACCES');
    expect(reasonOf('have more files open than it may')).toBe('EMFILE');
  });

  it('has left the other VM, its own and the host agent as they were', async () => {
    for (const id of [oneId, otherId]) expect((await host.shell(id, 'echo fine')).stdout.toString()).toBe('fine\n');
  });

  it('cannot have the host agent take another VM for its own', async () => {
    const target = join(await host.machineDirectory(otherId), 'run', 'qmp.sock');
    const { id } = await host.create();
    const run = join(await host.machineDirectory(id), 'run');
    // Not from its jail, in which nothing can be removed.
    await rm(join(run, 'qmp.sock'));
    await symlink(target, join(run, 'qmp.sock'));
    await symlink('/etc/passwd', join(run, 'devices'));
    await expect(host.pause(id)).rejects.toMatchObject({ status: 503 });
    expect((await host.shell(otherId, 'echo runs')).stdout.toString()).toBe('runs\n');
    expect((await host.destroy(id)).destroyed).toBe(true);
  });
});

it('a VMM that fills the disk beside its own is ended', async () => {
  const script =
    "import fs from 'node:fs'; for (let n = 0; n < 50; n++) fs.writeFileSync('/vm/run/' + n, ''); process.exit(0);";
  const { id } = await host.create();
  const vmm = new ConfinedVmm(await host.vmmPid(id));
  const rootsDirectory = join(host.directory, 'attack-root');
  await runInJailOf(vmm, { machineDirectory: await host.machineDirectory(id), imagePath, rootsDirectory, script });
  const error = expect.stringContaining('filled its run directory');
  await expect.poll(() => host.call('GET', `/v1/vms/${id}`)).toMatchObject({ state: 'dead', error });
  await host.destroy(id);
});

describe('a VM that wants more than its share', () => {
  it('of the processors gets no more, and its neighbour answers', async () => {
    await host.startExec(oneId, ['sh', '-c', 'for i in 1 2 3 4; do (while :; do :; done) & done; wait'], {}, 'hog');
    const [cpuFrom, from] = [one.cgroup.usage().cpuSeconds ?? 0, performance.now()];
    for (let round = 0; round < 5; round++)
      expect((await host.shell(otherId, 'echo fine')).stdout.toString()).toBe('fine\n');
    await expect.poll(() => performance.now() - from, { interval: 100 }).toBeGreaterThan(2_000);
    const used = (one.cgroup.usage().cpuSeconds ?? 0) - cpuFrom;
    const passed = (performance.now() - from) / 1_000;
    expect(used).toBeLessThan(1.5 * passed + 0.3); // the quota is by the 100 ms
    await host.call('DELETE', `/v1/vms/${oneId}/execs/hog`);
  });

  it('of memory stays within its limit on the host, whatever its guest does', async () => {
    const hog = 'head -c 400000000 /dev/zero > /dev/shm/a; head -c 300000000 /dev/zero > /root/b; sync; true';
    await host.shell(oneId, hog, { timeout_ms: 100_000 });
    const limit = Number(await limitOf(one, 'memory.max', 'memory.limit_in_bytes'));
    expect(one.cgroup.usage().memoryBytes).toBeLessThanOrEqual(limit);
    expect(one.cgroup.usage().outOfMemoryKills).toBe(0);
    expect((await host.shell(oneId, 'rm -f /dev/shm/a /root/b; echo alive')).stdout.toString()).toBe('alive\n');
  });

  it('of memory than its host gives it is dead for want of memory, and says so', async () => {
    const { id } = await host.create();
    const vmm = new ConfinedVmm(await host.vmmPid(id));
    const limit = String(vmm.cgroup.usage().memoryBytes + 24 * MIB);
    for (const directory of limitFiles(vmm))
      for (const name of ['memory.max', 'memory.limit_in_bytes'])
        if (existsSync(join(directory, name))) writeFileSync(join(directory, name), limit);
    const { cgroup } = vmm;
    await host.startExec(id, ['sh', '-c', 'head -c 200000000 /dev/urandom > /dev/shm/a'], {}, 'hog');
    expect(await host.endOf(id, 'hog')).toMatchObject({ state: 'lost' });
    expect(await host.call('GET', `/v1/vms/${id}`)).toMatchObject({
      state: 'dead',
      error: expect.stringContaining('out of memory'),
    });
    expect(cgroup.exists).toBe(false);
    await host.destroy(id);
  });
});

it('a VM that is limited in what its disk does takes its time', async () => {
  const bytesPerSecond = 20_000_000;
  await host.stop();
  await host.start({ diskRate: { bytesPerSecond, requestsPerSecond: 10_000 } });
  const { id } = await host.create();
  const from = performance.now();
  const write = 'head -c 48000000 /dev/urandom > /workspace/a && sync && echo done';
  expect((await host.shell(id, write)).stdout.toString()).toBe('done\n');
  // A tenth of a second's bytes pass at once; most of the rest has to wait.
  expect(performance.now() - from).toBeGreaterThan(1_500);
  await host.destroy(id);
  await host.stop();
  await host.start();
});

it('a host agent that confines nothing runs VMs all the same, and those that are confined', async () => {
  await host.stop();
  await host.start({ confinement: { mode: 'off', uidBase: 870_000 } });
  const { id } = await host.create();
  expect(new ConfinedVmm(await host.vmmPid(id)).uid).toBe(0);
  await host.pause(id);
  await host.resume(id);
  for (const each of [id, oneId]) expect((await host.shell(each, 'echo runs')).stdout.toString()).toBe('runs\n');
  await host.destroy(id);
  await host.stop();
  await host.start();
});

describe('what a VMM had', () => {
  const uidsOf = async (directory: string) => {
    const names = await readdir(UIDS);
    const owners = await promisify(execFile)(
      'readlink',
      names.map((name) => join(UIDS, name)),
    ).catch(() => ({ stdout: '' }));
    return owners.stdout.split('\n').filter((line) => line.includes(directory));
  };

  it('is given back when it is paused, and another one is taken when it goes on', async () => {
    const { cgroup } = one;
    await host.pause(oneId);
    expect(cgroup.exists).toBe(false);
    expect(await uidsOf(join(host.vmsDirectory, oneId))).toEqual([]);
    await host.resume(oneId);
    one = new ConfinedVmm(await host.vmmPid(oneId));
    expect(one.status('NoNewPrivs')).toBe('1');
    expect(processesIn(one.cgroup)).toEqual([one.pid]);
  });

  it('is the same for a host agent that comes after one that was killed, which also sweeps what is of nobody', async () => {
    await host.stop();
    const program = new TestProgram(host);
    await program.start();
    const [kept, lost] = await Promise.all([host.create(), host.create()]);
    const [keptVmm, lostVmm] = [kept, lost].map(({ id }) => id);
    const keptProcess = new ConfinedVmm(await host.vmmPid(keptVmm as string));
    const lostProcess = new ConfinedVmm(await host.vmmPid(lostVmm as string));
    const { cgroup, uid } = keptProcess;
    const { cgroup: lostGroup } = lostProcess;
    await program.kill();
    process.kill(lostProcess.pid, 'SIGKILL');
    await program.start();
    await expect.poll(() => lostGroup.exists).toBe(false);
    expect(keptProcess.uid).toBe(uid);
    expect((await host.shell(kept.id, 'echo alive')).stdout.toString()).toBe('alive\n');
    await Promise.all([host.destroy(kept.id), host.destroy(lost.id)]);
    expect(cgroup.exists).toBe(false);
    await program.kill();
    await host.start();
    host.useUrl(host.agent.url);
  });

  it('is all given back in the end', async () => {
    await Promise.all([host.destroy(oneId), host.destroy(otherId)]);
    expect(await uidsOf(host.vmsDirectory)).toEqual([]);
    expect(one.cgroup.exists).toBe(false);
  });
});
