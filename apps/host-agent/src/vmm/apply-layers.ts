/** Puts memory layers into the memory of a VM that has not run yet. */
import { PAGE_BYTES } from '../snapshots/memory/layer-file.ts';
import { LayerStack } from '../snapshots/memory/layer-stack.ts';
import { ProcessMemory } from './process-memory.ts';

export async function applyLayers(
  options: { pid: number; memoryPath: string; layerPaths: readonly string[] },
  signal?: AbortSignal,
): Promise<void> {
  if (options.layerPaths.length === 0) return;
  const memory = await ProcessMemory.open(options.pid, options.memoryPath, 'r+');
  try {
    const stack = await LayerStack.open(options.layerPaths, memory.pages * PAGE_BYTES);
    try {
      await stack.copyTo((bytes, firstPage) => memory.write(bytes, firstPage), signal);
    } finally {
      await stack[Symbol.asyncDispose]();
    }
  } finally {
    await memory[Symbol.asyncDispose]();
  }
}
