/** A GPU is one VM's for as long as that lives, and what it holds can be saved by nobody. */
import { AppError } from '@fuse/contract';
import type { CreateVm } from '@fuse/host-protocol';

/** 503 when another VM has one of those that it is to have. */
export function requireFreeGpus({ gpus }: CreateVm, others: Iterable<{ id: string; gpus: readonly string[] }>): void {
  if (gpus === undefined) return;
  for (const other of others) {
    const held = gpus.devices.find((id) => other.gpus.includes(id));
    if (held === undefined) continue;
    throw new AppError('unavailable', `GPU "${held}" is VM "${other.id}"'s`, {
      details: { reason: 'gpus' },
      retryAfterSeconds: 5,
    });
  }
}

export const gpusError = (message: string): AppError =>
  new AppError('conflict', message, { details: { reason: 'gpus' } });

/** 409: whatever would save it, or put another memory in its place. */
export function requireNoGpus({ id, order }: { id: string; order: CreateVm }): void {
  if (order.gpus !== undefined) throw gpusError(`VM "${id}" has GPUs: it cannot be paused, snapshotted or restored`);
}
