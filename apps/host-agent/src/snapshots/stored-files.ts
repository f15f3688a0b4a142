/**
 * Files that never change once they are written: what tells whether they are still what they were. Size, time and inode tell it cheaply, the
 * digest for good; a digest that was compared is believed for as long as the three stay the same.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { z } from 'zod';
import { sparseDigest } from '../templates/sparse-digest.ts';
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

/** Stamps of the files, by path, whose digests this process has computed or compared. */
const believed = new Map<string, string>();

export async function describeFiles(directory: string, names: readonly string[]): Promise<StoredFile[]> {
  return Promise.all(
    names.map(async (name) => {
      const { size, stamp } = await look(join(directory, name));
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
    const digest = await sparseDigest(path, signal);
    if ((await look(path).catch(() => undefined))?.stamp !== file.stamp) throw damaged(`${file.name} has changed`);
    believed.set(path, file.stamp);
    digested.push({ ...file, digest });
  }
  return digested;
}

/** Rejects with integrity_error unless every file is what it was; reads those through that this process has not read yet. */
export async function verifyFiles(directory: string, files: readonly StoredFile[], signal: AbortSignal): Promise<void> {
  for (const file of files) {
    const path = join(directory, file.name);
    const seen = await look(path).catch(() => undefined);
    if (seen === undefined) throw damaged(`${file.name} is missing`);
    if (seen.size !== file.size_bytes)
      throw damaged(`${file.name} has ${seen.size} bytes and should have ${file.size_bytes}`);
    if (believed.get(path) === seen.stamp) continue;
    if (file.digest === undefined) {
      if (seen.stamp !== file.stamp) throw damaged(`${file.name} has changed`);
      continue;
    }
    if ((await sparseDigest(path, signal)) !== file.digest) throw damaged(`${file.name} does not match its digest`);
    believed.set(path, seen.stamp);
  }
}

export function forgetFiles(directory: string, files: readonly StoredFile[]): void {
  for (const { name } of files) believed.delete(join(directory, name));
}

async function look(path: string): Promise<{ size: number; stamp: string }> {
  const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
  return { size: Number(size), stamp: `${dev}:${ino}:${size}:${mtimeNs}` };
}

const damaged = (what: string): AppError => new AppError('integrity_error', `stored bytes are damaged: ${what}`);
