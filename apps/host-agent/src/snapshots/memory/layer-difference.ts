/** What one memory holds and another over the same base does not, as a layer over that other. */
import { PAGE_BYTES } from './layer-file.ts';
import { type LayerSize, LayerWriter } from './layer-writer.ts';
import type { MemoryView } from './memory-view.ts';
import { piecesOfMarked } from './page-pieces.ts';
import { pump } from './pump.ts';

/** `path` must not exist; it is not flushed, and not left behind on failure. */
export function writeDifference(
  { from, to, path }: { from: MemoryView; to: MemoryView; path: string },
  signal?: AbortSignal,
): Promise<LayerSize> {
  // Elsewhere both memories are the base.
  const touched = new Uint8Array(to.sizeBytes / PAGE_BYTES);
  for (const { stack } of [from, to])
    for (const { firstPage, pages } of stack.runs) touched.fill(1, firstPage, firstPage + pages);
  return LayerWriter.write(path, to.sizeBytes, (layer) =>
    pump(
      {
        pieces: piecesOfMarked(touched),
        read: async ({ firstPage, pages }, buffer) => {
          const newer = buffer.subarray(0, pages * PAGE_BYTES);
          const older = Buffer.allocUnsafe(newer.length);
          await Promise.all([to.read(newer, firstPage * PAGE_BYTES), from.read(older, firstPage * PAGE_BYTES)]);
          return { newer, older };
        },
        write: ({ firstPage }, { newer, older }) =>
          layer.append(firstPage, newer, (index) => {
            const at = index * PAGE_BYTES;
            return newer.compare(older, at, at + PAGE_BYTES, at, at + PAGE_BYTES) !== 0;
          }),
      },
      signal,
    ),
  );
}
