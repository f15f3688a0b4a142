/**
 * Whether VMs really boot under KVM here. On some cloud machines /dev/kvm opens and creates vCPUs, and a stock guest kernel then hangs
 * for ever: only a boot tells. The verdict holds for one kernel, one QEMU and one boot of this machine, and is kept in a file.
 */
import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@fuse/runtime';
import { DeadlineError, withDeadline } from '@fuse/runtime';
import { z } from 'zod';
import { readTail } from '../log-file.ts';
import { hostBootId, VmmProcess } from '../process.ts';
import { probeArguments, QEMU_PROGRAM } from './command-line.ts';

const PROBE_DEADLINE_MS = 10_000;
const VERDICT_FILE = 'kvm-probe.json';

const Verdict = z.object({ of: z.string(), boots: z.boolean(), reason: z.string() });

export interface KvmProbeOptions {
  dataDirectory: string;
  kernelPath: string;
  qemuVersion: string;
  log: Logger;
}

export async function kvmBoots(options: KvmProbeOptions): Promise<boolean> {
  try {
    await access('/dev/kvm', constants.R_OK | constants.W_OK);
  } catch {
    return false;
  }
  const kernel = await stat(options.kernelPath);
  const of = [options.kernelPath, kernel.size, kernel.mtimeMs, options.qemuVersion, await hostBootId()].join(' ');
  await mkdir(options.dataDirectory, { recursive: true });
  const path = join(options.dataDirectory, VERDICT_FILE);
  const known = await readVerdict(path);
  if (known?.of === of) return known.boots;
  const verdict = { of, ...(await probe(options)) };
  await writeFile(`${path}.new`, JSON.stringify(verdict));
  await rename(`${path}.new`, path);
  options.log.info({ boots: verdict.boots, reason: verdict.reason }, 'kvm probed');
  return verdict.boots;
}

async function readVerdict(path: string): Promise<z.infer<typeof Verdict> | undefined> {
  try {
    return Verdict.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return undefined;
  }
}

/**
 * The kernel finds no root file system, panics and reboots, which ends QEMU: it ran from its first to its last line. This QEMU alone is in no jail: nobody's code but ours runs
 * in it, without disk, memory file, network or guest channel, and its verdict decides what the jails of all others have in them (prepareQemuRoot).
 */
async function probe(options: KvmProbeOptions): Promise<{ boots: boolean; reason: string }> {
  const directory = await mkdtemp(join(options.dataDirectory, 'kvm-probe-'));
  const consolePath = join(directory, 'console.log');
  const logPath = join(directory, 'vmm.log');
  const log = { path: logPath, flags: 'a' } as const;
  try {
    const process = await VmmProcess.spawn({
      program: QEMU_PROGRAM,
      args: probeArguments('kvm', options.kernelPath, consolePath),
      directory,
      stdio: ['ignore', log, log],
    });
    try {
      await withDeadline(PROBE_DEADLINE_MS, 'boot under KVM', () => process.exited);
    } finally {
      await process.kill();
    }
    if ((await readTail(consolePath)).includes('Kernel panic')) return { boots: true, reason: 'booted' };
    return { boots: false, reason: (await readTail(logPath)).trim() || 'QEMU ended before the kernel did' };
  } catch (error) {
    if (error instanceof DeadlineError) return { boots: false, reason: error.message };
    return { boots: false, reason: error instanceof Error ? error.message : String(error) };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
