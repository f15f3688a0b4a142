/** Guest memory as it is for whoever starts from it: a base file with layers over it. */
import { type FileHandle, open, stat } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { PAGE_BYTES } from './layer-file.ts';
import { LayerStack } from './layer-stack.ts';
import { readFully } from './whole-io.ts';

export interface MemoryFiles {
  /** A multiple of the page size long. */
  memoryPath: string;
  /** Oldest first. */
  layerPaths: readonly string[];
}

export class MemoryView implements AsyncDisposable {
  readonly sizeBytes: number;
  readonly stack: LayerStack;
  readonly #base: FileHandle;

  private constructor(sizeBytes: number, base: FileHandle, stack: LayerStack) {
    this.sizeBytes = sizeBytes;
    this.#base = base;
    this.stack = stack;
  }

  /** A layer that is none, or one of another memory, is `integrity_error`. */
  static async open({ memoryPath, layerPaths }: MemoryFiles): Promise<MemoryView> {
    const { size } = await stat(memoryPath);
    if (size % PAGE_BYTES !== 0) throw new AppError('integrity_error', 'a memory file is cut in the middle of a page');
    const stack = await LayerStack.open(layerPaths, size);
    try {
      return new MemoryView(size, await open(memoryPath, 'r'), stack);
    } catch (error) {
      await stack[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Fills the whole of `target` from byte `position` on. */
  async read(target: Buffer, position: number): Promise<void> {
    const firstPage = Math.floor(position / PAGE_BYTES);
    const endPage = Math.ceil((position + target.length) / PAGE_BYTES);
    const isAligned = firstPage * PAGE_BYTES === position && (endPage - firstPage) * PAGE_BYTES === target.length;
    const pages = isAligned ? target : Buffer.allocUnsafe((endPage - firstPage) * PAGE_BYTES);
    await readFully(this.#base, pages, firstPage * PAGE_BYTES);
    await this.stack.overlay(pages, firstPage);
    if (!isAligned) pages.copy(target, 0, position - firstPage * PAGE_BYTES);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stack[Symbol.asyncDispose]();
    await this.#base.close();
  }
}
