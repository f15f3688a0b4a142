import { randomBytes } from 'node:crypto';
import { AppError } from '@fuse/contract';
import type { ObjectStore } from '../object-store.ts';
import { makeRoot } from './directories.ts';
import { onDisk } from './disk-errors.ts';
import { sweepLeftovers } from './leftovers.ts';

/** Makes the store's directories, sweeps what killed puts left, and tries a put and a delete. Errors name the directory. */
export async function checkDirectory(store: ObjectStore, directory: string, temporary: string): Promise<void> {
  const probeKey = `.check.${randomBytes(8).toString('hex')}`;
  try {
    await onDisk(makeRoot(directory));
    await onDisk(makeRoot(temporary));
    await onDisk(sweepLeftovers(temporary));
    await store.put(probeKey, Buffer.from(probeKey));
    await store.delete(probeKey);
  } catch (cause) {
    if (!(cause instanceof AppError)) throw cause;
    const { details, hint } = cause;
    throw new AppError('unavailable', `object store directory ${directory}: ${cause.message}`, {
      cause,
      ...(details === undefined ? {} : { details }),
      ...(hint === undefined ? {} : { hint }),
    });
  }
}
