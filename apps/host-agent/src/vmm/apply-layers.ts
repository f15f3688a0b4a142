/** Puts memory layers into the memory of a VM that has not run yet. */
import { PAGE_BYTES } from '../snapshots/memory/layer-file.ts';
import { LayerStack } from '../snapshots/memory/layer-stack.ts';
import { ProcessMemory } from './process-memory.ts';

export interface LayersOfVm {
  pid: number;
  memoryPath: string;
  layerPaths: readonly string[];
}

export async function applyLayers(layers: LayersOfVm, signal?: AbortSignal): Promise<void> {
  await withLayers(layers, (memory, stack) => copyLayers(memory, stack, signal));
}

export const copyLayers = (memory: ProcessMemory, stack: LayerStack, signal?: AbortSignal): Promise<void> =>
  stack.copyTo((bytes, firstPage) => memory.write(bytes, firstPage), signal);

/** Nothing is done where there are no layers. */
export async function withLayers(
  { pid, memoryPath, layerPaths }: LayersOfVm,
  work: (memory: ProcessMemory, stack: LayerStack) => Promise<void>,
): Promise<void> {
  if (layerPaths.length === 0) return;
  const memory = await ProcessMemory.open(pid, memoryPath, 'r+');
  try {
    const stack = await LayerStack.open(layerPaths, memory.pages * PAGE_BYTES);
    try {
      await work(memory, stack);
    } finally {
      await stack[Symbol.asyncDispose]();
    }
  } finally {
    await memory[Symbol.asyncDispose]();
  }
}
