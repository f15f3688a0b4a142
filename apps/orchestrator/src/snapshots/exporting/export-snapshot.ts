/** One try at an export: what it consists of, references, upload of what the store lacks, done. Every step can be repeated. */
import { AppError } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import type { Logger } from '@fuse/runtime';
import type { Db } from '../../db/db.ts';
import type { HostDirectory } from '../../hosts/host-directory.ts';
import { CHUNK_PREFIX, chunkKey, manifestKey } from './chunk-keys.ts';
import type { ClaimedExport } from './export-leases.ts';
import { completeExport, type Held, markStored, referToChunks, type StoredChunk } from './export-store.ts';

export interface ExportContext {
  db: Db;
  hosts: HostDirectory;
  objectStore: ObjectStore;
  log: Logger;
}

const LOOKS_AT_ONCE = 16;

export async function exportSnapshot(
  context: ExportContext,
  { id, host_id }: ClaimedExport,
  owner: string,
  signal: AbortSignal,
): Promise<void> {
  const { db, hosts, log } = context;
  const held: Held = { snapshotId: id, owner };
  const host = await hosts.client(host_id);
  const { chunks } = await host.snapshotChunks(id, signal);
  const { missing, isResumed } = await db.transaction((tx) =>
    referToChunks(
      tx,
      held,
      chunks.map(({ sha256 }) => sha256),
    ),
  );
  const found = isResumed ? await findUploaded(context.objectStore, missing, signal) : [];
  if (found.length > 0) await db.transaction((tx) => markStored(tx, held, found));
  const uploadedBefore = new Set(found.map(({ sha256 }) => sha256));
  const lacking = missing.filter((sha256) => !uploadedBefore.has(sha256));
  log.info(
    { snapshot_id: id, chunks: chunks.length, missing: missing.length, uploaded_before: found.length },
    'exporting a snapshot',
  );
  signal.throwIfAborted();
  const exported = await host.exportSnapshot(
    id,
    { chunk_prefix: CHUNK_PREFIX, manifest_key: manifestKey(id), missing: lacking },
    signal,
  );
  await db.transaction((tx) =>
    completeExport(tx, held, { uploaded: exported.uploaded, manifestBytes: exported.manifest_bytes }),
  );
  log.info({ snapshot_id: id, uploaded: exported.uploaded.length }, 'a snapshot is exported');
}

/** What an earlier try uploaded and did not live to record. An object is whole, and nobody deletes one that is referred to. */
async function findUploaded(
  objectStore: ObjectStore,
  sha256s: readonly string[],
  signal: AbortSignal,
): Promise<StoredChunk[]> {
  const found: StoredChunk[] = [];
  const queue = sha256s.values();
  const look = async () => {
    for (const sha256 of queue) {
      signal.throwIfAborted();
      const info = await objectStore.head(chunkKey(sha256)).catch(undefinedIfMissing);
      if (info !== undefined) found.push({ sha256, stored_bytes: info.sizeBytes });
    }
  };
  await Promise.all(Array.from({ length: LOOKS_AT_ONCE }, look));
  return found;
}

function undefinedIfMissing(error: unknown): undefined {
  if (error instanceof AppError && error.code === 'not_found') return undefined;
  throw error;
}
