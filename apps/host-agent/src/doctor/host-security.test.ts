/** What doctor makes of a host, from files as its kernel has them. */
import { once } from 'node:events';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { missingForNetwork } from '../network/missing.ts';
import { confinementCheck, controlGroupsCheck, judgeConfinement } from './checks/confinement.ts';
import { judgeNetworkTools, kvmPermissionsCheck } from './checks/devices.ts';
import { firecrackerCheck, judgeFound, judgeMissing } from './checks/firecracker.ts';
import { kernelCheck } from './checks/kernel.ts';
import { judgeNetwork, networkCheck } from './checks/network.ts';
import { hyperThreadingCheck, mitigationsCheck, samePageMergingCheck, swapCheck } from './checks/side-channels.ts';
import type { Check, Finding } from './finding.ts';

describe('doctor, of a host,', () => {
  let root: string;
  let remove: () => PromiseLike<void>;
  beforeEach(async () => {
    const temporary = await temporaryDirectory('fuse-doctor-');
    root = temporary.path;
    remove = temporary[Symbol.asyncDispose];
  });
  afterEach(() => remove());

  async function put(files: Record<string, string>): Promise<void> {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(root, path)), { recursive: true });
      await writeFile(join(root, path), `${text}\n`);
    }
  }
  const run = (check: Check, env: NodeJS.ProcessEnv = {}): Promise<Finding> =>
    check.run({
      ...{ root, env, home: root },
      signal: new AbortController().signal,
      vmm: async () => ({ name: 'qemu', accelerator: 'tcg' }),
    });

  it('finds nothing to say of one where these things are off', async () => {
    await put({
      'sys/devices/system/cpu/smt/active': '0',
      'sys/kernel/mm/ksm/run': '0',
      'proc/swaps': 'Filename\t\t\t\tType\t\tSize',
      'proc/sys/kernel/osrelease': '6.1.0-57-cloud-amd64',
      'proc/cpuinfo': 'processor\t: 0\nmicrocode\t: 0x2b000639',
      'sys/devices/system/cpu/vulnerabilities/meltdown': 'Not affected',
      'sys/devices/system/cpu/vulnerabilities/spectre_v2': 'Mitigation: Enhanced / Automatic IBRS; IBPB: conditional',
      'proc/self/mounts': 'cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0',
      'sys/fs/cgroup/cgroup.controllers': 'cpuset cpu io memory hugetlb pids',
    });
    const checks = [
      hyperThreadingCheck,
      samePageMergingCheck,
      swapCheck,
      kernelCheck,
      mitigationsCheck,
      controlGroupsCheck,
    ];
    const findings = await Promise.all(checks.map((check) => run(check)));
    expect(findings.map(({ verdict }) => verdict)).toEqual(checks.map(() => 'ok'));
    expect(findings[4]?.message).toContain('0x2b000639');
  });

  it.each<[string, Check, Record<string, string>, string]>([
    ['hyper-threading', hyperThreadingCheck, { 'sys/devices/system/cpu/smt/active': '1' }, 'smt/control'],
    ['merged pages', samePageMergingCheck, { 'sys/kernel/mm/ksm/run': '1' }, 'ksm/run'],
    ['swap', swapCheck, { 'proc/swaps': 'Filename Type\n/dev/sda2 partition 8388604 0 -2' }, 'swapoff'],
    ['an old kernel', kernelCheck, { 'proc/sys/kernel/osrelease': '5.4.0-200-generic' }, '6.1'],
    ['one that cannot set clocks', kernelCheck, { 'proc/sys/kernel/osrelease': '5.10.0-30-amd64' }, '6.1'],
    [
      'a CPU that is open',
      mitigationsCheck,
      { 'sys/devices/system/cpu/vulnerabilities/mds': 'Vulnerable: Clear CPU buffers attempted, no microcode' },
      'microcode',
    ],
    [
      'one that hyper-threading opens',
      mitigationsCheck,
      { 'sys/devices/system/cpu/vulnerabilities/l1tf': 'Mitigation: PTE Inversion; VMX: SMT vulnerable' },
      'hyper-threading',
    ],
    [
      'control groups of version 1',
      controlGroupsCheck,
      {
        'proc/self/mounts': ['memory', 'cpu', 'pids']
          .map((each) => `cgroup /sys/fs/cgroup/${each} cgroup rw,${each} 0 0`)
          .join('\n'),
      },
      'unified_cgroup_hierarchy',
    ],
    ['missing control groups', controlGroupsCheck, { 'proc/self/mounts': 'proc /proc proc rw 0 0' }, 'mount version 2'],
  ])('warns of %s and says what to change', async (_what, check, files, fix) => {
    await put(files);
    expect(await run(check)).toMatchObject({ verdict: 'warn', fix: expect.stringContaining(fix) });
  });

  it('looks at who may open /dev/kvm', async () => {
    expect((await run(kvmPermissionsCheck)).verdict).toBe('ok');
    await put({ 'dev/kvm': '' });
    await chmod(join(root, 'dev/kvm'), 0o666);
    expect(await run(kvmPermissionsCheck)).toMatchObject({
      verdict: 'warn',
      fix: expect.stringContaining('chmod 660'),
    });
    await chmod(join(root, 'dev/kvm'), 0o660);
    expect((await run(kvmPermissionsCheck)).verdict).toBe('ok');
  });

  it('says how networks of VMs become possible', () => {
    const all = { nft: 'nftables v1.0.6 (Lester Gooch #5)', ip: 'ip utility', tun: true };
    expect(judgeNetworkTools(all)).toMatchObject({ verdict: 'ok', message: expect.stringContaining('v1.0.6') });
    expect(judgeNetworkTools({ ...all, nft: undefined }).fix).toContain('install --no-install-recommends nftables');
    expect(judgeNetworkTools({ ...all, tun: false }).fix).toBe('modprobe tun');
  });

  it('says what networks of VMs lack, and makes one where that is nothing', async () => {
    const judged = (missing: string | undefined, canMakeSlot = false) => judgeNetwork({ missing, canMakeSlot });
    expect(judged('root, as whom the host agent has to run')).toMatchObject({
      verdict: 'warn',
      fix: expect.stringContaining('as root'),
    });
    expect(judged('the program nft (package nftables)').fix).toBe('apt-get install --no-install-recommends nftables');
    expect(judged('the device /dev/net/tun (kernel module tun)').fix).toBe('modprobe tun');
    expect(judged(undefined)).toMatchObject({ verdict: 'warn', message: expect.stringContaining('no network card') });
    expect(judged(undefined, true).verdict).toBe('ok');
    expect((await run(networkCheck, { FUSE_EGRESS_NETNS: '../etc' })).verdict).toBe('fail');
    const isRoot = process.geteuid?.() === 0;
    expect((await run(networkCheck, { FUSE_EGRESS_NETNS: 'no-such-namespace' })).message).toContain(
      isRoot ? 'no-such-namespace' : 'root',
    );
    if ((await missingForNetwork({ egressNamespace: undefined })) === undefined)
      expect(await run(networkCheck)).toMatchObject({ verdict: 'ok' });
  });

  it('fails without confinement only where that is required', async () => {
    const facts = { mode: 'auto', isRoot: true, missing: [] };
    expect(judgeConfinement(facts).verdict).toBe('ok');
    expect(judgeConfinement({ ...facts, isRoot: false })).toMatchObject({
      verdict: 'warn',
      message: expect.stringContaining('root'),
    });
    expect(judgeConfinement({ ...facts, mode: 'required', missing: ['pids'] })).toMatchObject({
      verdict: 'fail',
      message: expect.stringContaining('pids'),
    });
    expect((await run(confinementCheck, { FUSE_CONFINEMENT: 'off' })).verdict).toBe('warn');
  });

  it('takes the word of the local stack that is up for how that is confined', async () => {
    const report = {
      ...{ cpus: 1, ram_mb: 1, storage_gb: 1, free_storage_gb: 1, vm_count: 1, arch: 'amd64', gpus: 0, gpu_kind: '' },
      ...{ backend: 'qemu', accelerator: 'tcg', confined: false, templates: [] },
    };
    const server = createServer((request, response) => {
      response.statusCode = request.headers.authorization === 'Bearer t' ? 200 : 401;
      response.end(JSON.stringify(report));
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    try {
      const { port } = server.address() as AddressInfo; // it listens on a port, so this is no pipe
      const local = (token: string) => JSON.stringify({ host_url: `http://127.0.0.1:${port}`, host_token: token });
      await put({ 'local.json': local('t') });
      expect((await run(confinementCheck)).message).toContain('local stack that is up does not confine');
      await put({ 'local.json': local('of another') });
      expect((await run(confinementCheck)).message).not.toContain('local stack');
    } finally {
      server.close();
    }
  });

  it('asks for Firecracker as it is configured', async () => {
    const missing = { FUSE_FIRECRACKER: join(root, 'no-firecracker') };
    expect(await run(firecrackerCheck, missing)).toMatchObject({
      verdict: 'warn',
      message: expect.stringContaining('QEMU'),
    });
    expect((await run(firecrackerCheck, { ...missing, FUSE_VMM: 'firecracker' })).verdict).toBe('fail');
    expect((await run(firecrackerCheck, { ...missing, FUSE_VMM: 'qemu' })).verdict).toBe('ok');
    expect(judgeFound('1.17.0', 'auto', 'firecracker').verdict).toBe('ok');
    expect(judgeFound('1.17.0', 'auto', 'qemu')).toMatchObject({
      verdict: 'warn',
      message: expect.stringContaining('1.17.0'),
    });
    expect(judgeMissing(new AppError('unavailable', 'too old', { hint: 'newer' }), 'auto').fix).toBe('newer');
  });
});
