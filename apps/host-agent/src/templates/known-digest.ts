/**
 * Digests of files that are not changed once they are written. Device, inode, size and time tell cheaply whether a file is still what it was, whatever
 * its names: a digest that this process has computed holds for as long as they stay the same.
 */
import { stat } from 'node:fs/promises';
import { sparseDigest } from './sparse-digest.ts';

/** The oldest are computed anew when they are asked for again. */
const MAX_KNOWN = 10_000;
const known = new Map<string, string>();

export async function stampOf(path: string): Promise<{ size: number; stamp: string }> {
  const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
  return { size: Number(size), stamp: `${dev}:${ino}:${size}:${mtimeNs}` };
}

/** The stamp is the file's after its digest was computed. */
export async function knownDigest(path: string, signal?: AbortSignal): Promise<{ digest: string; stamp: string }> {
  const before = await stampOf(path);
  const found = known.get(before.stamp);
  if (found !== undefined) return { digest: found, stamp: before.stamp };
  const digest = await sparseDigest(path, signal);
  const { stamp } = await stampOf(path);
  if (stamp === before.stamp) remember(stamp, digest);
  return { digest, stamp };
}

function remember(stamp: string, digest: string): void {
  known.set(stamp, digest);
  const [oldest] = known.keys();
  if (known.size > MAX_KNOWN && oldest !== undefined) known.delete(oldest);
}
