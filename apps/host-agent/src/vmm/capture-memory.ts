/** A layer of the pages that a paused VM has written since it was started. */
import { PAGE_BYTES } from '../snapshots/memory/layer-file.ts';
import { type LayerSize, LayerWriter } from '../snapshots/memory/layer-writer.ts';
import { piecesOfMarked } from '../snapshots/memory/page-pieces.ts';
import { pump } from '../snapshots/memory/pump.ts';
import { ProcessMemory } from './process-memory.ts';

export async function captureMemory(
  options: { pid: number; memoryPath: string; layerPath: string },
  signal?: AbortSignal,
): Promise<LayerSize> {
  const memory = await ProcessMemory.open(options.pid, options.memoryPath, 'r');
  try {
    const dirty = await memory.dirtyPages();
    return await LayerWriter.write(options.layerPath, memory.pages * PAGE_BYTES, (layer) =>
      pump(
        {
          pieces: piecesOfMarked(dirty),
          read: async ({ firstPage, pages }, buffer) => {
            const bytes = buffer.subarray(0, pages * PAGE_BYTES);
            await memory.read(bytes, firstPage);
            return bytes;
          },
          write: ({ firstPage }, bytes) => layer.append(firstPage, bytes, (index) => dirty[firstPage + index] === 1),
        },
        signal,
      ),
    );
  } finally {
    await memory[Symbol.asyncDispose]();
  }
}
