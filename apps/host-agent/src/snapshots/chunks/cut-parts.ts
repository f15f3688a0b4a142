/** Cuts what a snapshot consists of into chunks; holes and zeros are in none. */
import type { SnapshotPart } from '../snapshot-parts.ts';
import { CHUNK_BYTES, digestOfChunk } from './chunk.ts';
import type { ManifestPart } from './manifest.ts';

const zeros = Buffer.alloc(CHUNK_BYTES);

export async function cutPart(part: SnapshotPart, signal: AbortSignal): Promise<ManifestPart> {
  const chunks: ManifestPart['chunks'] = [];
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  for (const number of numbersOf(part)) {
    signal.throwIfAborted();
    const plain = await readChunk(part, number, buffer);
    if (!plain.equals(zeros.subarray(0, plain.length))) chunks.push([number, digestOfChunk(plain)]);
  }
  return { name: part.name, size_bytes: part.sizeBytes, chunks };
}

/** The part's last chunk may be short. */
export function chunkSize(part: { sizeBytes: number }, number: number, chunkBytes = CHUNK_BYTES): number {
  return Math.min(chunkBytes, part.sizeBytes - number * chunkBytes);
}

/** Into the front of `buffer`. */
export async function readChunk(part: SnapshotPart, number: number, buffer: Buffer): Promise<Buffer> {
  const plain = buffer.subarray(0, chunkSize(part, number));
  await part.read(plain, number * CHUNK_BYTES);
  return plain;
}

/** Of the chunks in which there may be data, ascending. */
function* numbersOf({ extents, sizeBytes }: SnapshotPart): Generator<number> {
  let next = 0;
  for (const { start, end } of extents) {
    const last = Math.ceil(Math.min(end, sizeBytes) / CHUNK_BYTES);
    for (let number = Math.max(next, Math.floor(start / CHUNK_BYTES)); number < last; number += 1) yield number;
    next = Math.max(next, last);
  }
}
