/**
 * Files that never change once they are written: what tells whether they are still what they were. Size, time and inode tell it cheaply, the
 * digest for good; a digest that was compared is believed for as long as the three stay the same.
 */
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { z } from 'zod';
import { knownDigest, stampOf } from '../templates/known-digest.ts';
import { flushDirectoryOf, flushFile } from '../vmm/sparse-copy.ts';

export const StoredFile = z.object({
  /** Below the directory that the list is of. */
  name: z.string(),
  size_bytes: z.number().int(),
  stamp: z.string(),
  /** Once it has been computed, of what was flushed before. */
  digest: z.string().length(64).optional(),
});
export type StoredFile = z.infer<typeof StoredFile>;

export async function describeFiles(directory: string, names: readonly string[]): Promise<StoredFile[]> {
  return Promise.all(
    names.map(async (name) => {
      const { size, stamp } = await stampOf(join(directory, name));
      return { name, size_bytes: size, stamp };
    }),
  );
}

/** With their names. */
export async function flushFiles(directory: string, names: readonly string[]): Promise<void> {
  await Promise.all(names.map((name) => flushFile(join(directory, name))));
  for (const parent of new Set(names.map((name) => join(directory, name, '..')))) await flushFile(parent);
  await flushDirectoryOf(directory);
}

/** Rejects with integrity_error when a file is no longer the one that was described. */
export async function digestFiles(
  directory: string,
  files: readonly StoredFile[],
  signal: AbortSignal,
): Promise<StoredFile[]> {
  const digested: StoredFile[] = [];
  for (const file of files) {
    const path = join(directory, file.name);
    const { digest, stamp } = await knownDigest(path, signal);
    if (stamp !== file.stamp) throw damaged(`${file.name} has changed`);
    digested.push({ ...file, digest });
  }
  return digested;
}

/** Rejects with integrity_error unless every file is what it was; reads those through that this process has not read yet. */
export async function verifyFiles(directory: string, files: readonly StoredFile[], signal: AbortSignal): Promise<void> {
  for (const file of files) {
    const path = join(directory, file.name);
    const seen = await stampOf(path).catch(() => undefined);
    if (seen === undefined) throw damaged(`${file.name} is missing`);
    if (seen.size !== file.size_bytes)
      throw damaged(`${file.name} has ${seen.size} bytes and should have ${file.size_bytes}`);
    if (file.digest === undefined) {
      if (seen.stamp !== file.stamp) throw damaged(`${file.name} has changed`);
      continue;
    }
    if ((await knownDigest(path, signal)).digest !== file.digest)
      throw damaged(`${file.name} does not match its digest`);
  }
}

const damaged = (what: string): AppError => new AppError('integrity_error', `stored bytes are damaged: ${what}`);
