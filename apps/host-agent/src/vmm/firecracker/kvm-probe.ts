/** Whether VMs really boot in Firecracker here: on some cloud machines /dev/kvm opens and creates vCPUs, and a stock kernel then hangs for ever. Only a boot tells. */
import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DeadlineError, withDeadline } from '@fuse/runtime';
import { type KeptVerdict, keptVerdict } from '../kept-verdict.ts';
import { readTail } from '../log-file.ts';
import { hostBootId } from '../process.ts';
import { inside } from './chroot.ts';
import { probeCalls } from './machine-configuration.ts';
import { type StartMeans, startFirecracker } from './start.ts';

const PROBE_DEADLINE_MS = 10_000;
const PROBE_MEMORY_MIB = 256;

/** The verdict holds for one kernel, one Firecracker and one boot of this machine, and is kept in a file of `dataDirectory`. */
export async function firecrackerBoots(
  means: StartMeans,
  options: { dataDirectory: string; kernelPath: string },
): Promise<KeptVerdict> {
  const { dataDirectory, kernelPath } = options;
  const kernel = await stat(kernelPath);
  const { firecracker, version } = means.programs;
  const of = [kernelPath, kernel.size, kernel.mtimeMs, firecracker, version, await hostBootId()].join(' ');
  await mkdir(dataDirectory, { recursive: true });
  const path = join(dataDirectory, 'firecracker-probe.json');
  const verdict = await keptVerdict({ path, of }, () => probe(means, options));
  means.log.info({ boots: verdict.boots, reason: verdict.reason }, 'Firecracker probed');
  return verdict;
}

/** The kernel finds no root file system, panics and resets, which ends Firecracker: it ran from its first to its last line. */
async function probe(
  means: StartMeans,
  { dataDirectory, kernelPath }: { dataDirectory: string; kernelPath: string },
): Promise<KeptVerdict> {
  const directory = await mkdtemp(join(dataDirectory, 'firecracker-probe-'));
  const consolePath = join(directory, 'console.log');
  try {
    await writeFile(consolePath, '');
    const vmm = await startFirecracker(means, {
      directory,
      shape: { cpus: 1, memoryMiB: PROBE_MEMORY_MIB },
      networkNamespacePath: undefined,
      record: { memory: 'booted', consolePath },
      links: [
        { path: kernelPath, name: inside.kernel, access: 'readable' },
        { path: consolePath, name: inside.console, access: 'owned' },
      ],
    });
    try {
      await withDeadline(PROBE_DEADLINE_MS, 'boot in Firecracker', async (signal) => {
        await vmm.configure(probeCalls(PROBE_MEMORY_MIB), signal);
        await vmm.exited;
      });
    } finally {
      await vmm.destroy();
    }
    if ((await readTail(consolePath)).includes('Kernel panic')) return { boots: true, reason: 'booted' };
    const { logTail } = await vmm.exited;
    return { boots: false, reason: logTail.trim() || 'Firecracker ended before the kernel did' };
  } catch (error) {
    if (error instanceof DeadlineError) return { boots: false, reason: error.message };
    return { boots: false, reason: error instanceof Error ? error.message : String(error) };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
