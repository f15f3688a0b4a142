/** Environments with GPUs: what a device that is passed through to a VM holds can be saved by nobody, so neither can the VM. */
import { AppError, type CreateEnvironment, type EnvironmentSpec, invalidField } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';

const has = ({ gpus = 0 }: EnvironmentSpec): boolean => gpus > 0;
const details = { reason: 'gpus' };

/** Of a snapshot, fork or pause that is asked for: 409. */
export function requireSavable({ id, spec }: Pick<EnvironmentRow, 'id' | 'spec'>): void {
  if (!has(spec)) return;
  throw new AppError('conflict', `vm ${id} has gpus: it cannot be paused, snapshotted or forked`, {
    details,
    hint: 'Save what it has made as files or outputs.',
  });
}

/** Whatever would pause or snapshot it by itself. */
export function checkSavesNothing({
  spec = {},
  idle_action,
  checkpoint_interval_seconds = 0,
}: Pick<CreateEnvironment, 'spec' | 'idle_action' | 'checkpoint_interval_seconds'>): void {
  if (!has(spec)) return;
  if (idle_action === 'pause') throw invalidField('idle_action', 'goes without spec.gpus: such a VM cannot be paused');
  if (checkpoint_interval_seconds > 0)
    throw invalidField('checkpoint_interval_seconds', 'goes without spec.gpus: such a VM cannot be snapshotted');
}

/** Saved memory knows no devices. */
export function requireDiskAlone(
  spec: EnvironmentSpec,
  snapshot: { id: string; includeMemory: boolean },
  fallback: 'disk' | undefined,
): void {
  if (!has(spec) || !snapshot.includeMemory || fallback === 'disk') return;
  throw new AppError('conflict', `snapshot ${snapshot.id} has memory, which cannot be restored beside gpus`, {
    details: { ...details, field: 'seed_snapshot_id' },
    hint: 'Pass "fallback": "disk" to boot from its disk alone.',
  });
}
