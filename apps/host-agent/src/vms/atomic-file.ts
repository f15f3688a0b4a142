import { closeSync, constants, fstatSync, openSync, renameSync, writeFileSync, writeSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { flushDirectoryOf, flushFile } from '../vmm/sparse-copy.ts';

/** The way through the thread pool takes ten times as long as so few bytes into the page cache, and the start of a command waits for it. */
const SMALL_CHARS = 8_192;
const PAGE_BYTES = 4_096;

/**
 * A reader sees the old text or the new one, whatever happens to this process in between. Nothing is flushed: what runs here does not
 * survive the machine's power cut either. One writer a path at a time.
 */
export async function writeAtomically(path: string, text: string): Promise<void> {
  const next = `${path}.new`;
  if (text.length <= SMALL_CHARS) {
    writeFileSync(next, text, { mode: 0o600 });
    renameSync(next, path);
  } else {
    await writeFile(next, text, { mode: 0o600 });
    await rename(next, path);
  }
}

/**
 * The same for what is written with every short command: one write of at most a page is done whole or not at all too, and spares a new file
 * and a rename, which take longer than all else. Spaces cover what was longer. A file that is empty was never written.
 */
export async function writeInPlace(path: string, text: string): Promise<void> {
  const bytes = Buffer.from(text);
  if (bytes.length > PAGE_BYTES || !wroteInPlace(path, bytes)) await writeAtomically(path, text);
}

function wroteInPlace(path: string, bytes: Buffer): boolean {
  const fd = openSync(path, constants.O_RDWR | constants.O_CREAT, 0o600);
  try {
    const { size } = fstatSync(fd);
    if (size > PAGE_BYTES) return false;
    const whole = Buffer.alloc(Math.max(size, bytes.length), ' ');
    bytes.copy(whole);
    const written = writeSync(fd, whole, 0, whole.length, 0);
    return written === whole.length;
  } finally {
    closeSync(fd);
  }
}

/** For what does survive it: flushed, and its name too. */
export async function writeDurably(path: string, text: string): Promise<void> {
  const next = `${path}.new`;
  await writeFile(next, text, { mode: 0o600, flush: true });
  await rename(next, path);
  await flushDirectoryOf(path);
}

export async function flushIfThere(path: string): Promise<void> {
  await flushFile(path).catch((error: unknown) => {
    if (!isMissing(error)) throw error;
  });
}

export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

export const isMissing = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'ENOENT';
