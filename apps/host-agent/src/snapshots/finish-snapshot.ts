/** Usable -> durable: memory stored as the difference to the parent's, all flushed, digests recorded. */
import { AppError } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import { hostBootId } from '../vmm/process.ts';
import { diskUseOf, namesOf, type SnapshotRecord, saveSnapshotRecord } from './snapshot-record.ts';
import { storeDifference } from './store-difference.ts';
import { describeFiles, digestFiles, flushFiles } from './stored-files.ts';
import type { HeldSnapshot } from './stored-snapshot.ts';

export interface FinishPlace {
  directory: string;
  log: Logger;
  /** Another snapshot of this host. */
  hold: (id: string, signal: AbortSignal) => Promise<HeldSnapshot>;
}

/** Resolves with the record that is on disk now. */
export async function finishSnapshot(
  place: FinishPlace,
  record: SnapshotRecord,
  signal: AbortSignal,
): Promise<SnapshotRecord> {
  const { directory } = place;
  if (record.boot_id !== (await hostBootId()))
    throw new AppError('integrity_error', 'the host ended before the snapshot was flushed');
  const names = (await differenceToParent(place, record, signal)) ?? namesOf(record);
  await flushFiles(directory, names);
  const described = await describeFiles(directory, names);
  const known = described.map((file) => record.files.find(({ name }) => name === file.name) ?? file);
  const files = await digestFiles(directory, known, signal);
  const durable: SnapshotRecord = { ...record, ...(await diskUseOf(directory, names)), state: 'durable', files };
  await saveSnapshotRecord(directory, durable, { flush: true });
  return durable;
}

/** What cannot be stored as a difference stays whole. */
async function differenceToParent(
  { directory, log, hold }: FinishPlace,
  record: SnapshotRecord,
  signal: AbortSignal,
): Promise<string[] | undefined> {
  const { id, parent_id } = record;
  if (parent_id === undefined) return undefined;
  try {
    await using parent = await hold(parent_id, signal);
    const own = { directory, names: namesOf(record) };
    const earlier = { directory: parent.directory, names: namesOf(parent.record) };
    return await storeDifference(own, earlier, AbortSignal.any([signal, parent.signal]));
  } catch (error) {
    signal.throwIfAborted();
    log.info({ err: error, snapshot_id: id, parent_id }, 'snapshot stays whole');
    return undefined;
  }
}
