/** Uploads chunks of a snapshot, some at a time; each is read again, and is still what it was when the export was planned. */
import { AppError } from '@fuse/contract';
import type { ExportedSnapshot } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import type { Logger } from '@fuse/runtime';
import { inParallel } from '../../files/in-parallel.ts';
import type { SnapshotPart } from '../snapshot-parts.ts';
import { CHUNK_BYTES, chunkKey, digestOfChunk, packChunk } from './chunk.ts';
import { readChunk } from './cut-parts.ts';

const UPLOADS_AT_ONCE = 12;
const PROGRESS_EVERY_MS = 10_000;

export interface WantedChunk {
  sha256: string;
  part: SnapshotPart;
  number: number;
}

export async function uploadChunks(
  { store, prefix, log }: { store: ObjectStore; prefix: string; log: Logger },
  chunks: readonly WantedChunk[],
  signal: AbortSignal,
): Promise<ExportedSnapshot['uploaded']> {
  let done = 0;
  let storedBytes = 0;
  let toldAt = performance.now();
  return inParallel(chunks, UPLOADS_AT_ONCE, signal, async ({ sha256, part, number }, stop) => {
    const plain = await readChunk(part, number, Buffer.allocUnsafe(CHUNK_BYTES));
    if (digestOfChunk(plain) !== sha256)
      throw new AppError('integrity_error', `${part.name} of the snapshot has changed while it was exported`);
    const packed = await packChunk(plain);
    await store.put(chunkKey(prefix, sha256), packed, { contentType: 'application/gzip', signal: stop });
    done += 1;
    storedBytes += packed.length;
    if (performance.now() - toldAt > PROGRESS_EVERY_MS) {
      toldAt = performance.now();
      log.info({ chunks: done, of: chunks.length, stored_bytes: storedBytes }, 'uploading a snapshot');
    }
    return { sha256, stored_bytes: packed.length };
  });
}
