/** Bytes for tests: any size without keeping them, each block different, the same for the same seed. */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';

const BLOCK_BYTES = 65_536;

export function* patternBlocks(sizeBytes: number, seed = 1): Generator<Buffer> {
  for (let at = 0; at < sizeBytes; at += BLOCK_BYTES) {
    const block = Buffer.alloc(Math.min(BLOCK_BYTES, sizeBytes - at), `${seed}:${at}|`);
    yield block;
  }
}

export const patternStream = (sizeBytes: number, seed?: number): Readable =>
  Readable.from(patternBlocks(sizeBytes, seed), { objectMode: false });

export const patternBytes = (sizeBytes: number, seed?: number): Buffer =>
  Buffer.concat([...patternBlocks(sizeBytes, seed)]);

export function patternSha256(sizeBytes: number, seed?: number): string {
  const hash = createHash('sha256');
  for (const block of patternBlocks(sizeBytes, seed)) hash.update(block);
  return hash.digest('hex');
}

/** How much came before the end or the error, and its sum. */
export async function drain(body: Readable): Promise<{ sizeBytes: number; sha256: string; error?: unknown }> {
  const hash = createHash('sha256');
  let sizeBytes = 0;
  try {
    for await (const chunk of body) {
      sizeBytes += chunk.length;
      hash.update(chunk);
    }
  } catch (error) {
    return { sizeBytes, sha256: hash.digest('hex'), error };
  }
  return { sizeBytes, sha256: hash.digest('hex') };
}
