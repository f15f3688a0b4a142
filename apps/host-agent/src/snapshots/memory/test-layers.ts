/** Layers as the tests write them down, and the memory that they make, computed the simple way. */
import { writeFile } from 'node:fs/promises';
import { PAGE_BYTES } from './layer-file.ts';
import { LayerWriter } from './layer-writer.ts';

/** Page number -> the byte that fills it. */
export type Pages = ReadonlyMap<number, number>;

export const pageOf = (byte: number): Buffer => Buffer.alloc(PAGE_BYTES, byte);

export async function writeLayer(path: string, memoryPages: number, pages: Pages): Promise<void> {
  await LayerWriter.write(path, memoryPages * PAGE_BYTES, async (layer) => {
    for (const [page, byte] of [...pages].sort(([one], [other]) => one - other))
      await layer.append(page, pageOf(byte), () => true);
  });
}

export async function writeBase(path: string, memoryPages: number, pages: Pages): Promise<void> {
  await writeFile(path, memoryOf(memoryPages, [pages]));
}

/** Later ones over earlier ones. */
export function memoryOf(memoryPages: number, layers: readonly Pages[]): Buffer {
  const memory = Buffer.alloc(memoryPages * PAGE_BYTES);
  for (const pages of layers) for (const [page, byte] of pages) pageOf(byte).copy(memory, page * PAGE_BYTES);
  return memory;
}
