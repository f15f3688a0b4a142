/**
 * The digest of a large sparse file at the price of its data: sha256 over the size and every 64 KiB block that is not all zero, each with
 * its number. Where data can be is asked of the file system (FIEMAP, through filefrag); holes and written zeros count as the same.
 */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { runProgram } from '../vmm/children.ts';

const BLOCK_BYTES = 65_536;
const READ_BYTES = 1_048_576;
const zeros = Buffer.alloc(BLOCK_BYTES);
const STAT_BLOCK_BYTES = 512;

export interface Extent {
  start: number;
  end: number;
}

export async function sparseDigest(path: string, signal?: AbortSignal): Promise<string> {
  const handle = await open(path, 'r');
  try {
    const { size, blocks } = await handle.stat();
    const extents =
      blocks * STAT_BLOCK_BYTES < size ? await dataExtents(path, size, signal) : [{ start: 0, end: size }];
    const hash = createHash('sha256').update(`${size}\n`);
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    for (const { start, end } of alignedExtents(extents, size)) {
      for (let position = start; position < end; ) {
        signal?.throwIfAborted();
        const { bytesRead } = await handle.read(buffer, 0, Math.min(READ_BYTES, end - position), position);
        if (bytesRead === 0) break;
        for (let at = 0; at < bytesRead; at += BLOCK_BYTES) {
          const block = buffer.subarray(at, Math.min(at + BLOCK_BYTES, bytesRead));
          if (!block.equals(zeros.subarray(0, block.length))) hash.update(`${position + at}\n`).update(block);
        }
        position += bytesRead;
      }
    }
    return hash.digest('hex');
  } finally {
    await handle.close();
  }
}

/** The whole file where the file system does not tell. */
export async function dataExtents(path: string, size: number, signal?: AbortSignal): Promise<Extent[]> {
  try {
    const args = ['-v', '-b4096', '--', path];
    return parseFilefrag(await runProgram('filefrag', args, { path: '/usr/sbin:/sbin:/usr/bin:/bin', signal }));
  } catch {
    signal?.throwIfAborted();
    return [{ start: 0, end: size }];
  }
}

/** Lines ` number: first.. last: …`, in blocks of 4096 bytes. */
export function parseFilefrag(output: string): Extent[] {
  return [...output.matchAll(/^ *\d+: *(\d+)\.\. *(\d+):/gm)].map(([, first, last]) => ({
    start: Number(first) * 4096,
    end: (Number(last) + 1) * 4096,
  }));
}

/** Widened to whole blocks, so that where an extent begins does not show in the digest; sorted, without overlap. */
export function alignedExtents(extents: readonly Extent[], size: number): Extent[] {
  const merged: Extent[] = [];
  for (const extent of [...extents].sort((one, other) => one.start - other.start)) {
    const start = Math.floor(extent.start / BLOCK_BYTES) * BLOCK_BYTES;
    const end = Math.min(Math.ceil(extent.end / BLOCK_BYTES) * BLOCK_BYTES, size);
    const last = merged.at(-1);
    if (last !== undefined && start <= last.end) last.end = Math.max(last.end, end);
    else if (start < end) merged.push({ start, end });
  }
  return merged;
}
