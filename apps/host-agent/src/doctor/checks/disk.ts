import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Check, type Finding, fail, ok, warn } from '../finding.ts';

const GIB = 1024 ** 3;
/** A template takes up to half a GiB, an image a fifth; a VM what it writes. */
const ENOUGH_GIB = 10;
const LEAST_GIB = 2;

export const diskCheck: Check = {
  name: 'disk',
  async run({ home }) {
    const { bavail, bsize } = await statfs(await nearestExisting(home));
    return judgeDisk(bavail * bsize, home);
  },
};

export function judgeDisk(freeBytes: number, home: string): Finding {
  const free = `${(freeBytes / GIB).toFixed(1)} GiB free at ${home}`;
  const fix = 'free some space, or set FUSE_HOME to a larger file system';
  if (freeBytes < LEAST_GIB * GIB) return fail(`${free}: too little for a VM`, fix);
  if (freeBytes < ENOUGH_GIB * GIB) return warn(`${free}: enough for a few VMs only`, fix);
  return ok(free);
}

/** FUSE_HOME itself is made by the first set-up. */
export async function nearestExisting(path: string): Promise<string> {
  for (let each = path; ; each = dirname(each)) {
    if (
      each === dirname(each) ||
      (await statfs(each).then(
        () => true,
        () => false,
      ))
    )
      return each;
  }
}
