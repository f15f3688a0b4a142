import { link, symlink } from 'node:fs/promises';
import { resolve } from 'node:path';

/** A second name that keeps the bytes; where the first is on another file system, one that only points to it. */
export async function linkFile(existing: string, path: string): Promise<void> {
  try {
    await link(existing, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
    await symlink(resolve(existing), path);
  }
}
