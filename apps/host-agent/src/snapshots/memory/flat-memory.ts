/** Base and layers as one file, which any number of VMs map: what none of them has written they share. */
import { open, rename, rm } from 'node:fs/promises';
import { copySparse } from '../../vmm/sparse-copy.ts';
import { PAGE_BYTES } from './layer-file.ts';
import { type MemoryFiles, MemoryView } from './memory-view.ts';
import { writeFully } from './whole-io.ts';

/** `path` is there once it is whole, not flushed; nothing is left of a failure. */
export async function writeFlatMemory(files: MemoryFiles, path: string, signal?: AbortSignal): Promise<void> {
  const making = `${path}.making`;
  await using memory = await MemoryView.open(files);
  try {
    await copySparse(files.memoryPath, making, signal);
    const flat = await open(making, 'r+');
    try {
      await memory.stack.copyTo((bytes, firstPage) => writeFully(flat, bytes, firstPage * PAGE_BYTES), signal);
    } finally {
      await flat.close();
    }
    await rename(making, path);
  } catch (error) {
    await rm(making, { force: true });
    throw error;
  }
}
