/** Parts of a snapshot from the object store into sparse files. Each chunk is fetched once and verified before a byte of it is written. */
import { type FileHandle, open } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { AppError } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import { inParallel } from '../../files/in-parallel.ts';
import { writeFully } from '../memory/whole-io.ts';
import type { SnapshotPartName } from '../snapshot-parts.ts';
import { chunkKey, damaged, maxPackedBytes, unpackChunk } from './chunk.ts';
import { chunkSize } from './cut-parts.ts';
import type { ManifestContent } from './manifest.ts';

const DOWNLOADS_AT_ONCE = 16;

interface Place {
  file: FileHandle;
  number: number;
  sizeBytes: number;
}

/** `pathOf` says where a part's file goes; it must not exist. What is left of a failure is the caller's to remove. */
export async function downloadParts(
  { store, pathOf }: { store: ObjectStore; pathOf: (part: SnapshotPartName) => string },
  { parts, chunk_prefix, chunk_bytes }: ManifestContent,
  signal: AbortSignal,
): Promise<void> {
  const places = new Map<string, Place[]>();
  const files: FileHandle[] = [];
  try {
    for (const { name, size_bytes, chunks } of parts) {
      const file = await open(pathOf(name), 'wx', 0o600);
      files.push(file);
      await file.truncate(size_bytes);
      for (const [number, sha256] of chunks) {
        const place = { file, number, sizeBytes: chunkSize({ sizeBytes: size_bytes }, number, chunk_bytes) };
        const others = places.get(sha256);
        if (others === undefined) places.set(sha256, [place]);
        else others.push(place);
      }
    }
    await inParallel([...places], DOWNLOADS_AT_ONCE, signal, async ([sha256, wanted], stop) => {
      const sizeBytes = wanted[0]?.sizeBytes ?? 0;
      const plain = await unpackChunk(await fetchPacked(store, chunkKey(chunk_prefix, sha256), sizeBytes, stop), {
        ...{ sha256, sizeBytes },
      });
      // The same content has the same length, so a manifest that says otherwise is wrong.
      if (wanted.some((place) => place.sizeBytes !== sizeBytes)) throw damaged(sha256);
      for (const { file, number } of wanted) await writeFully(file, plain, number * chunk_bytes);
    });
  } finally {
    await Promise.all(files.map((file) => file.close()));
  }
}

async function fetchPacked(store: ObjectStore, key: string, sizeBytes: number, signal: AbortSignal): Promise<Buffer> {
  const sha256 = key.slice(-64);
  const { info, body } = await store.get(key, { signal }).catch((error: unknown) => {
    throw error instanceof AppError && error.code === 'not_found' ? damaged(sha256, error) : error;
  });
  if (info.sizeBytes > maxPackedBytes(sizeBytes)) {
    body.destroy();
    throw damaged(sha256);
  }
  return buffer(body);
}
