/** Taking over a VM that an earlier host agent started in Firecracker. That needs none of the programs, only what the VM was started with. */
import type { Logger } from '@fuse/runtime';
import type { Confinement } from '../../confinement/confinement.ts';
import { VmmProcess } from '../process.ts';
import { Chroot } from './chroot.ts';
import { FirecrackerVmm } from './firecracker-vmm.ts';
import { readRecord } from './record.ts';

/** Undefined when it has ended, or there was none: then its cell is given back, unless it is only about to be started. */
export async function adoptFirecracker(
  { confinement, log }: { confinement: Confinement; log: Logger },
  directory: string,
  isStarting = false,
): Promise<FirecrackerVmm | undefined> {
  const record = await readRecord(directory);
  if (record === undefined) return undefined;
  const chroot = new Chroot(directory, record.programName);
  const cell = confinement.find(directory);
  const process = await VmmProcess.adopt(directory, record.programName, (pid) => chroot.isRootOf(pid));
  if (process !== undefined) return new FirecrackerVmm({ directory, process, cell, chroot, record, log });
  if (!isStarting) await cell?.end();
  return undefined;
}

export const isFirecrackers = async (directory: string): Promise<boolean> =>
  (await readRecord(directory)) !== undefined;
