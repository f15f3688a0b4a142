import { type FileHandle, open, rename } from 'node:fs/promises';
import { copySparse } from '../vmm/sparse-copy.ts';

const CHUNK_BYTES = 1_048_576;

/** Where there is data. Only this name of the file gets the damage: a template's memory has others. Undoing gives it the whole file back. */
export async function flipByte(path: string): Promise<() => Promise<void>> {
  const whole = `${path}.whole`;
  await rename(path, whole);
  await copySparse(whole, path);
  await using file = await open(path, 'r+');
  const { at, byte } = await firstData(file);
  await file.write(Buffer.of(byte ^ 1), 0, 1, at);
  return () => rename(whole, path);
}

async function firstData(file: FileHandle): Promise<{ at: number; byte: number }> {
  const chunk = Buffer.alloc(CHUNK_BYTES);
  for (let start = 0; ; start += CHUNK_BYTES) {
    const { bytesRead } = await file.read(chunk, 0, CHUNK_BYTES, start);
    if (bytesRead === 0) throw new Error('the file is all zeros');
    const index = chunk.subarray(0, bytesRead).findIndex((byte) => byte > 1);
    if (index >= 0) return { at: start + index, byte: chunk[index] ?? 0 };
  }
}
