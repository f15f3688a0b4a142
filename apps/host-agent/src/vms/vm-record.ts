/** What is kept of a VM in `vms/<id>/vm.json`. It must survive the end of this process, not of the machine. */
import { join } from 'node:path';
import { CreateVm, HostVm, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import { readIfThere, writeAtomically } from './atomic-file.ts';

export const VmRecord = z.object({
  id: VmId,
  /** `starting` is never taken up again: a VM that was not handed over is removed. */
  state: z.enum(['starting', 'running', 'dead']),
  order: CreateVm,
  created_at: z.string(),
  /** Of the last identity that the guest confirmed. */
  generation: z.number().int(),
  error: z.string().optional(),
  timings: HostVm.shape.timings,
});
export type VmRecord = z.infer<typeof VmRecord>;

const recordPath = (directory: string): string => join(directory, 'vm.json');

export async function saveVmRecord(directory: string, record: VmRecord): Promise<void> {
  await writeAtomically(recordPath(directory), JSON.stringify(record));
}

/** Undefined when there is none: the VM was never begun. */
export async function loadVmRecord(directory: string): Promise<VmRecord | undefined> {
  const text = await readIfThere(recordPath(directory));
  return text === undefined ? undefined : VmRecord.parse(JSON.parse(text));
}
