/**
 * One incarnation of a VM: its VMM and, in a directory of its own below the VM's, its disk, memory and sockets. A VM that is resumed or restored
 * gets the next one, and only then loses the last: which of them counts is in the VM's record.
 */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Guest } from '../guest/guest.ts';
import type { Vmm, VmmDriver } from '../vmm/driver.ts';
import { isMissing } from './atomic-file.ts';

export interface Machine {
  vmm: Vmm;
  guest: Guest;
  directory: string;
}

const MACHINE_NAME = /^machine-(\d+)$/;
/** Before VMs could be resumed, a VM's machine was in the VM's own directory. */
const OWN_DIRECTORY = '.';

export const writableDiskPath = (directory: string): string => join(directory, 'writable.img');

export const FIRST_MACHINE = 'machine-1';

/** An empty directory for it. */
export async function makeNextMachine(vmDirectory: string, current: string): Promise<string> {
  const name = `machine-${Number(MACHINE_NAME.exec(current)?.[1] ?? 0) + 1}`;
  await removeMachine(vmDirectory, name);
  await mkdir(join(vmDirectory, name), { mode: 0o700 });
  return name;
}

/** Its directory is left. */
export async function endMachine({ vmm, guest }: Machine): Promise<void> {
  await guest[Symbol.asyncDispose]();
  await vmm.destroy();
}

export async function removeMachine(vmDirectory: string, name: string): Promise<void> {
  if (name !== OWN_DIRECTORY) return rm(join(vmDirectory, name), { recursive: true, force: true });
  for (const entry of await readdir(vmDirectory))
    if (entry !== 'vm.json' && entry !== 'execs' && !MACHINE_NAME.test(entry))
      await rm(join(vmDirectory, entry), { recursive: true, force: true });
}

/** Whatever VMM an earlier host agent left in this VM's directory, but for the machine that counts, is ended and its files removed. */
export async function sweepMachines(driver: VmmDriver, vmDirectory: string, keep: string): Promise<void> {
  for (const name of await machineNames(vmDirectory)) {
    if (name === keep) continue;
    await (await driver.adopt(join(vmDirectory, name)))?.destroy();
    await removeMachine(vmDirectory, name);
  }
}

export async function endLeftVmms(driver: VmmDriver, vmDirectory: string): Promise<void> {
  for (const name of [OWN_DIRECTORY, ...(await machineNames(vmDirectory))])
    await (await driver.adopt(join(vmDirectory, name)))?.destroy();
}

async function machineNames(vmDirectory: string): Promise<string[]> {
  const entries = await readdir(vmDirectory).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  return entries.filter((name) => MACHINE_NAME.test(name));
}
