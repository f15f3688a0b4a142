/** What is kept of a snapshot in `snapshots/<id>/snapshot.json`. */
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { HostSnapshot, Shape, SnapshotId } from '@fuse/host-protocol';
import { z } from 'zod';
import { readIfThere, writeAtomically, writeDurably } from '../vms/atomic-file.ts';
import { StoredFile } from './stored-files.ts';

export const SNAPSHOT_FORMAT = 1;
export const SNAPSHOT_DISK_FILE = 'disk.img';
const SNAPSHOT_RECORD_FILE = 'snapshot.json';

/** What must be here for the snapshot to be of use: all of it for memory, the image alone for the disk. */
export const MadeOn = z.object({ image: z.string(), kernel: z.string(), initramfs: z.string(), driver: z.string() });
export type MadeOn = z.infer<typeof MadeOn>;

export const SnapshotRecord = z.object({
  format: z.literal(SNAPSHOT_FORMAT),
  id: SnapshotId,
  tag: z.string(),
  state: z.enum(['usable', 'durable', 'broken']),
  vm_id: z.string(),
  image: z.string(),
  shape: Shape,
  made_on: MadeOn,
  include_memory: z.boolean(),
  network_card: z.boolean().optional(),
  parent_id: z.string().optional(),
  created_at: z.string(),
  pause_ms: z.number().optional(),
  size_bytes: z.number().int().optional(),
  stored_bytes: z.number().int().optional(),
  files: z.array(StoredFile),
  /** Of the host's run in which the files were written: until they are flushed they are whole only within it. */
  boot_id: z.string(),
  error: z.string().optional(),
});
export type SnapshotRecord = z.infer<typeof SnapshotRecord>;

export async function saveSnapshotRecord(
  directory: string,
  record: SnapshotRecord,
  { flush }: { flush: boolean },
): Promise<void> {
  const write = flush ? writeDurably : writeAtomically;
  await write(join(directory, SNAPSHOT_RECORD_FILE), JSON.stringify(record));
}

/** Undefined when there is none. */
export async function loadSnapshotRecord(directory: string): Promise<SnapshotRecord | undefined> {
  const text = await readIfThere(join(directory, SNAPSHOT_RECORD_FILE));
  return text === undefined ? undefined : SnapshotRecord.parse(JSON.parse(text));
}

export function viewOf(record: SnapshotRecord): HostSnapshot {
  const { format: _format, made_on: _madeOn, files, boot_id: _bootId, ...shown } = record;
  return HostSnapshot.parse({ ...shown, ...(record.state === 'durable' ? { digest: digestOver(files) } : {}) });
}

/** What the files take on disk, and what of it no other name holds. */
export async function diskUseOf(
  directory: string,
  names: readonly string[],
): Promise<{ size_bytes: number; stored_bytes: number }> {
  let size_bytes = 0;
  let stored_bytes = 0;
  for (const name of names) {
    const { blocks, nlink } = await stat(join(directory, name));
    size_bytes += blocks * 512;
    if (nlink === 1) stored_bytes += blocks * 512;
  }
  return { size_bytes, stored_bytes };
}

function digestOver(files: readonly StoredFile[]): string {
  const hash = createHash('sha256');
  for (const { name, digest } of [...files].sort((one, other) => (one.name < other.name ? -1 : 1)))
    hash.update(`${name}\0${digest ?? ''}\n`);
  return hash.digest('hex');
}

export const namesOf = ({ files }: SnapshotRecord): string[] => files.map(({ name }) => name);
