/** What an export of a snapshot would consist of. */
import type { SnapshotChunks } from '@fuse/host-protocol';
import type { SnapshotPart, SnapshotParts } from '../snapshot-parts.ts';
import { CHUNK_BYTES } from './chunk.ts';
import { chunkSize, cutPart } from './cut-parts.ts';
import type { ManifestPart } from './manifest.ts';
import type { WantedChunk } from './upload-chunks.ts';

/** Reads and hashes everything. */
export async function planExport({ parts }: SnapshotParts, signal: AbortSignal): Promise<ManifestPart[]> {
  const plan: ManifestPart[] = [];
  for (const part of parts) plan.push(await cutPart(part, signal));
  return plan;
}

export function chunksOf(plan: readonly ManifestPart[]): SnapshotChunks['chunks'] {
  const sizes = new Map<string, number>();
  for (const part of plan)
    for (const [number, sha256] of part.chunks)
      sizes.set(sha256, chunkSize({ sizeBytes: part.size_bytes }, number, CHUNK_BYTES));
  return [...sizes].map(([sha256, size_bytes]) => ({ sha256, size_bytes }));
}

/** Where to read those that are wanted, each once. One that the snapshot does not have is left out. */
export function placesOf(
  plan: readonly ManifestPart[],
  parts: readonly SnapshotPart[],
  wanted: readonly string[],
): WantedChunk[] {
  const left = new Set(wanted);
  const places: WantedChunk[] = [];
  for (const part of parts) {
    const chunks = plan.find(({ name }) => name === part.name)?.chunks ?? [];
    for (const [number, sha256] of chunks) if (left.delete(sha256)) places.push({ sha256, part, number });
  }
  return places;
}
