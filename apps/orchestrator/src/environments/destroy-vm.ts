/** A VM deleted from its host with every trace, and what becomes true of its environment with that: where its execs can be read from now on. */
import { AppError } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import { inMs } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { HostClient } from '../hosts/host-client.ts';
import { recordNetwork } from '../network/record-network.ts';
import type { EnvironmentContext } from './environment-context.ts';
import type { Change } from './environment-store.ts';

export interface ExecArchiving {
  objectStore: ObjectStore;
  /** How long execs can be read once their environment is gone. */
  retentionMs: number;
}

export type ArchiveColumns = Pick<NonNullable<Change['columns']>, 'archive_key' | 'archive_until'>;

/** Object with the execs of an environment that is gone. */
export const archiveKeyOf = (uid: string): string => `execs/${uid}`;

type Parts = Pick<EnvironmentContext, 'db' | 'log' | 'archiving'>;

/** May be repeated. Runs keep their logs by themselves. What its network card carried is in its row then. */
export async function destroyVm(
  { db, log, archiving: { objectStore, retentionMs } }: Parts,
  row: Pick<EnvironmentRow, 'uid' | 'id' | 'vm_id' | 'run_id' | 'network_card'>,
  client: HostClient,
): Promise<{ destroyMs: number; columns: ArchiveColumns }> {
  if (row.network_card !== false) await keepLastRefusals({ db, log }, row, client);
  const archiveKey = row.run_id === null ? archiveKeyOf(row.uid) : undefined;
  const { destroyed, destroy_ms, archived, network } = await client.destroyVm(row.vm_id, { archiveKey });
  if (network !== undefined) await recordNetwork(db, row.uid, network);
  // Destroyed before, it was archived then.
  const isKept = archiveKey !== undefined && (archived || (!destroyed && (await exists(objectStore, archiveKey))));
  const columns = isKept ? { archive_key: archiveKey, archive_until: inMs(retentionMs) } : {};
  return { destroyMs: destroy_ms, columns };
}

/** Its host tells them while it is there; a host that cannot is asked for its destruction all the same. */
async function keepLastRefusals(
  { db, log }: Pick<Parts, 'db' | 'log'>,
  row: Pick<EnvironmentRow, 'uid' | 'id' | 'vm_id'>,
  client: HostClient,
): Promise<void> {
  try {
    const { network } = await client.vm(row.vm_id);
    if (network !== undefined) await recordNetwork(db, row.uid, network);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    if (error.code !== 'not_found')
      log.warn({ err: error, environment: row.id, vm_id: row.vm_id }, 'last refusals of a VM not known');
  }
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
