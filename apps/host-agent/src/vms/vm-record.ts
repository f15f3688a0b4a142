/** What is kept of a VM in `vms/<id>/vm.json`. */
import { join } from 'node:path';
import { CreateVm, HostVm, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import { NetworkPast } from '../network/network-past.ts';
import { Slot } from '../network/slot.ts';
import { readIfThere, writeAtomically, writeDurably } from './atomic-file.ts';

export const VmRecord = z.object({
  id: VmId,
  /** `starting` is never taken up again: a VM that was not handed over is removed. */
  state: z.enum(['starting', 'running', 'paused', 'dead']),
  order: CreateVm,
  created_at: z.string(),
  /** The directory, below the VM's own, of its machine: each start from memory is a new one (machine.ts). */
  machine: z.string().default('.'),
  /** Of the last identity that the guest confirmed. */
  generation: z.number().int(),
  paused_at_ms: z.number().optional(),
  /** Set once its memory has come from a snapshot, whose execs the guest still knows. */
  exec_scope: z.string().optional(),
  restore_id: z.string().optional(),
  disk_only: z.boolean().optional(),
  /** It has one, for as long as it exists; its policies are the order's. */
  network_card: z.boolean().optional(),
  /** Of a running VM with a card. */
  slot: Slot.optional(),
  /** What had passed when it was last without a slot. */
  network_past: NetworkPast.optional(),
  error: z.string().optional(),
  timings: HostVm.shape.timings,
});
export type VmRecord = z.infer<typeof VmRecord>;

const recordPath = (directory: string): string => join(directory, 'vm.json');

/** A paused VM survives the machine's end, so its record is flushed; a running one does not. */
export async function saveVmRecord(directory: string, record: VmRecord): Promise<void> {
  const write = record.state === 'paused' ? writeDurably : writeAtomically;
  await write(recordPath(directory), JSON.stringify(record));
}

/** Undefined when there is none: the VM was never begun. */
export async function loadVmRecord(directory: string): Promise<VmRecord | undefined> {
  const text = await readIfThere(recordPath(directory));
  return text === undefined ? undefined : VmRecord.parse(JSON.parse(text));
}

export function withoutKeys<K extends 'error' | 'paused_at_ms' | 'slot'>(
  record: VmRecord,
  keys: readonly K[],
): VmRecord {
  const rest = { ...record };
  for (const key of keys) delete rest[key];
  return rest;
}
