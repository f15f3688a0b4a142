/**
 * Layers over the memory of a VM that Firecracker has loaded and not yet resumed. Loading itself writes to the guest's memory (a new generation id, the clock's counters): that
 * stays, in words of 8 bytes, which are what it writes in.
 */
import { open } from 'node:fs/promises';
import { PAGE_BYTES } from '../../snapshots/memory/layer-file.ts';
import { readFully } from '../../snapshots/memory/whole-io.ts';
import { copyLayers, type LayersOfVm, withLayers } from '../apply-layers.ts';
import type { ProcessMemory } from '../process-memory.ts';

const WORD_BYTES = 8;

interface WrittenPage {
  page: number;
  before: Buffer;
  after: Buffer;
}

export async function applyLayersBeneath(layers: LayersOfVm, signal?: AbortSignal): Promise<void> {
  await withLayers(layers, async (memory, stack) => {
    const written = await pagesWrittenByLoading(memory, layers.memoryPath);
    await copyLayers(memory, stack, signal);
    for (const { page, before, after } of written) {
      const layered = Buffer.from(before);
      await stack.overlay(layered, page);
      await memory.write(withWordsOf(after, { before, layered }), page);
    }
  });
}

async function pagesWrittenByLoading(memory: ProcessMemory, memoryPath: string): Promise<WrittenPage[]> {
  const written: WrittenPage[] = [];
  const file = await open(memoryPath, 'r');
  try {
    const dirty = await memory.dirtyPages();
    for (let page = dirty.indexOf(1); page >= 0; page = dirty.indexOf(1, page + 1)) {
      const [before, after] = [Buffer.alloc(PAGE_BYTES), Buffer.alloc(PAGE_BYTES)];
      await readFully(file, before, page * PAGE_BYTES);
      await memory.read(after, page);
      written.push({ page, before, after });
    }
  } finally {
    await file.close();
  }
  return written;
}

/** `layered`, with those words of `after` that differ from `before`. */
function withWordsOf(after: Buffer, { before, layered }: { before: Buffer; layered: Buffer }): Buffer {
  for (let at = 0; at < PAGE_BYTES; at += WORD_BYTES)
    if (after.compare(before, at, at + WORD_BYTES, at, at + WORD_BYTES) !== 0)
      after.copy(layered, at, at, at + WORD_BYTES);
  return layered;
}
