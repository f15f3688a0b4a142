import { once } from 'node:events';
import { createServer as createHttpServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { AppError } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { isolationCheck, judgeIsolation, judgeKvmBoot, kvmBootCheck } from './checks/accelerator.ts';
import { judgeCpu } from './checks/cpu.ts';
import { judgeDisk } from './checks/disk.ts';
import { firecrackerCheck } from './checks/firecracker.ts';
import { judgeGo } from './checks/go.ts';
import { judgeMemory } from './checks/memory.ts';
import { judgePorts, portsCheck } from './checks/ports.ts';
import { judgePrograms } from './checks/programs.ts';
import { judgeQemu } from './checks/qemu.ts';
import { diagnose } from './diagnose.ts';
import { type Check, type CheckContext, ok } from './finding.ts';
import { anyFailed, reportText } from './report.ts';

const context = (): CheckContext => ({
  home: '/nowhere',
  env: {},
  root: '/nowhere',
  signal: new AbortController().signal,
  vmm: async () => ({ name: 'qemu', accelerator: 'tcg' }),
});
async function listeningPort(server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port; // it listens on a port, so this is no pipe
}
const check = (name: string, run: Check['run']): Check => ({ name, run });

describe('what doctor says', () => {
  it('asks for a group when /dev/kvm may not be opened', () => {
    expect(judgeCpu({ cpuinfo: 'flags\t: fpu vmx', kvmDevice: 'forbidden' })).toMatchObject({
      verdict: 'warn',
      fix: expect.stringContaining('usermod'),
    });
    expect(judgeCpu({ cpuinfo: 'flags\t: fpu svm', kvmDevice: 'usable' }).verdict).toBe('ok');
    expect(judgeCpu({ cpuinfo: 'flags\t: fpu', kvmDevice: 'usable' }).verdict).toBe('warn');
    expect(judgeCpu({ cpuinfo: '', kvmDevice: 'missing' }).message).toContain('neither vmx nor svm');
  });

  it('calls emulation no security boundary', () => {
    expect(judgeIsolation('tcg')).toMatchObject({
      verdict: 'warn',
      message: expect.stringContaining('not a security boundary'),
    });
    expect(judgeKvmBoot({ name: 'qemu', accelerator: 'tcg' }).verdict).toBe('warn');
    expect(judgeIsolation('kvm').verdict).toBe('ok');
    expect(judgeKvmBoot({ name: 'firecracker', accelerator: 'kvm' }).message).toContain('in Firecracker');
  });

  it.each([
    ['QEMU emulator version 7.2.18 (Debian 1:7.2+dfsg)', true, 'ok'],
    ['QEMU emulator version 10.0.2', true, 'ok'],
    ['QEMU emulator version 6.2.0', true, 'fail'],
    ['QEMU emulator version 7.2.18', false, 'fail'],
    [undefined, true, 'fail'],
  ] as const)('judges QEMU by version and firmware: %s, %s is %s', (output, firmware, verdict) => {
    expect(judgeQemu(output, firmware).verdict).toBe(verdict);
  });

  it('takes Go as needed for building only', () => {
    expect(judgeGo('go version go1.26.8 linux/amd64', '1.24.0').verdict).toBe('ok');
    expect(judgeGo('go version go1.19 linux/amd64', '1.24.0').verdict).toBe('warn');
    expect(judgeGo('', '1.24.0').verdict).toBe('warn');
  });

  it('warns before it fails when disk or memory get short', () => {
    const gib = 1024 ** 3;
    expect([100, 5, 1].map((free) => judgeDisk(free * gib, '/x').verdict)).toEqual(['ok', 'warn', 'fail']);
    const available = (mib: number) => judgeMemory(`MemTotal: 1 kB\nMemAvailable:   ${mib * 1024} kB\n`).verdict;
    expect([8_000, 1_000, 100].map(available)).toEqual(['ok', 'warn', 'fail']);
  });

  it('fails without what every VM needs and warns without what only building needs', () => {
    expect(judgePrograms([]).verdict).toBe('ok');
    expect(judgePrograms(['mmdebstrap'])).toMatchObject({
      verdict: 'warn',
      fix: expect.stringContaining('mmdebstrap'),
    });
    expect(judgePrograms(['mkfs.ext4'])).toMatchObject({ verdict: 'fail', fix: expect.stringContaining('e2fsprogs') });
  });

  it('takes a port that Fuse itself holds as well', () => {
    const port = { port: 8080, variable: 'FUSE_PORT' };
    expect(judgePorts([{ ...port, holder: 'fuse' }]).verdict).toBe('ok');
    expect(judgePorts([{ ...port, holder: 'another program' }])).toMatchObject({
      verdict: 'warn',
      fix: expect.stringContaining('FUSE_PORT'),
    });
  });
});

describe('the ports', () => {
  it('are asked who holds them', async () => {
    const ours = createHttpServer((_request, response) => response.end('{"service":"fuse-orchestrator"}'));
    const theirs = createHttpServer((_request, response) => response.end('<html>'));
    try {
      const [apiPort, hostPort] = await Promise.all([ours, theirs].map(listeningPort));
      const env = { FUSE_PORT: String(apiPort), FUSE_HOST_LISTEN: `127.0.0.1:${hostPort}` };
      expect(await portsCheck.run({ ...context(), env })).toEqual({
        verdict: 'warn',
        message: `${apiPort} is held by fuse, ${hostPort} is held by another program`,
        fix: expect.stringContaining('FUSE_HOST_LISTEN'),
      });
    } finally {
      ours.close();
      theirs.close();
    }
  });
});

describe('a diagnosis', () => {
  it('tells once why Firecracker, which was asked for, does not run', async () => {
    const vmm = () => Promise.reject(new AppError('unavailable', 'firecracker is not there'));
    const asked = { ...context(), env: { FUSE_VMM: 'firecracker' }, vmm };
    const findings = await diagnose(asked, [kvmBootCheck, isolationCheck, firecrackerCheck]);
    expect(findings.map(({ verdict }) => verdict)).toEqual(['fail', 'fail', 'fail']);
    expect(findings.map(({ message }) => message.includes('is not there'))).toEqual([false, false, true]);
  });

  it('keeps the order of the checks and turns a throw into a failure', async () => {
    const findings = await diagnose(context(), [
      check('slow', async () => {
        await new Promise(setImmediate);
        return ok('fine');
      }),
      check('broken', async () => {
        throw new AppError('unavailable', 'no such thing', { hint: 'make it' });
      }),
    ]);
    expect(findings).toEqual([
      { check: 'slow', verdict: 'ok', message: 'fine' },
      { check: 'broken', verdict: 'fail', message: 'no such thing', fix: 'make it' },
    ]);
    expect(anyFailed(findings)).toBe(true);
  });

  it('is a line a check, with the fix below a line that needs one', () => {
    const text = reportText([
      { check: 'disk', verdict: 'ok', message: '9 GiB', fix: 'not shown' },
      { check: 'memory', verdict: 'fail', message: 'none', fix: 'buy some' },
    ]);
    expect(text.split('\n')).toEqual([
      '✓ ok    disk    9 GiB',
      '✗ fail  memory  none',
      '                fix: buy some',
      '',
      '1 ok, 0 warnings, 1 failures',
      '',
    ]);
  });
});
