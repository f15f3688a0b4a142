/**
 * The bound of a VM's disk. A VMM may write files as large as its largest one, which may be its memory, so one that a guest has broken into can make its disk longer than what
 * the VM was promised: such a disk is neither kept nor handed on, and its VM is dead.
 */
import { faultOfDisk } from '../vmm/machine-disk.ts';
import { writableDiskPath } from './machine.ts';
import type { VmCore } from './vm-core.ts';

/** Of the disk of its machine, or of a copy. Rejects with vm_lost once the VM is dead. */
export async function requireOwnDisk(
  core: VmCore,
  path: string = writableDiskPath(core.machineDirectory),
): Promise<void> {
  const fault = await faultOfDisk(path, core.record.order.shape.storage_gb);
  if (fault === undefined) return;
  await core.die(`its VMM has tampered with its disk, which ${fault}`);
  throw core.lost();
}
