/** Files that a VMM appends to for as long as it lives, kept within a bound by whoever looks after it. */
import { open } from 'node:fs/promises';

export const LOG_TAIL_BYTES = 4096;
const KEPT_BYTES = 65_536;

/** The end of the file as text without control characters, for people; empty when there is none. */
export async function readTail(path: string, maxBytes: number = LOG_TAIL_BYTES): Promise<string> {
  const bytes = await readEnd(path, maxBytes);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: taking them out is the point
  return bytes.toString('utf8').replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '');
}

/** Cuts a file of more than `maxBytes` down to its end. The writer has it open for appending, so it goes on after what is left. */
export async function boundFile(path: string, maxBytes: number): Promise<void> {
  let handle: Awaited<ReturnType<typeof open>>;
  try {
    handle = await open(path, 'r+');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  try {
    if ((await handle.stat()).size <= maxBytes) return;
    const end = await readEnd(path, Math.min(KEPT_BYTES, maxBytes));
    await handle.truncate(0);
    await handle.write(end, 0, end.length, 0);
  } finally {
    await handle.close();
  }
}

async function readEnd(path: string, maxBytes: number): Promise<Buffer> {
  let handle: Awaited<ReturnType<typeof open>>;
  try {
    handle = await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return Buffer.alloc(0);
    throw error;
  }
  try {
    const { size } = await handle.stat();
    const start = Math.max(0, size - maxBytes);
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(size, maxBytes)), 0, undefined, start);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}
