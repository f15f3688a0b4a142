/** A VM deleted from its host with every trace, and what becomes true of its environment with that: where its execs can be read from now on. */
import { AppError } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import { inMs } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { HostClient } from '../hosts/host-client.ts';
import type { Change } from './environment-store.ts';

export interface ExecArchiving {
  objectStore: ObjectStore;
  /** How long execs can be read once their environment is gone. */
  retentionMs: number;
}

export type ArchiveColumns = Pick<NonNullable<Change['columns']>, 'archive_key' | 'archive_until'>;

/** Object with the execs of an environment that is gone. */
export const archiveKeyOf = (uid: string): string => `execs/${uid}`;

/** May be repeated. Runs keep their logs by themselves. */
export async function destroyVm(
  { objectStore, retentionMs }: ExecArchiving,
  row: Pick<EnvironmentRow, 'uid' | 'vm_id' | 'run_id'>,
  client: HostClient,
): Promise<{ destroyMs: number; columns: ArchiveColumns }> {
  const archiveKey = row.run_id === null ? archiveKeyOf(row.uid) : undefined;
  const { destroyed, destroy_ms, archived } = await client.destroyVm(row.vm_id, { archiveKey });
  // Destroyed before, it was archived then.
  const isKept = archiveKey !== undefined && (archived || (!destroyed && (await exists(objectStore, archiveKey))));
  const columns = isKept ? { archive_key: archiveKey, archive_until: inMs(retentionMs) } : {};
  return { destroyMs: destroy_ms, columns };
}

async function exists(objectStore: ObjectStore, key: string): Promise<boolean> {
  try {
    await objectStore.head(key);
    return true;
  } catch (error) {
    // A store that cannot be asked holds nothing up: the execs are not readable then.
    if (error instanceof AppError && (error.code === 'not_found' || error.code === 'unavailable')) return false;
    throw error;
  }
}
