/** Layers over each other: of each page, the newest counts. However many there are, reading them costs what one would. */
import { type Layer, openLayer, PAGE_BYTES } from './layer-file.ts';
import { PIECE_BYTES, pump } from './pump.ts';
import { readFully } from './whole-io.ts';

const PIECE_PAGES = PIECE_BYTES / PAGE_BYTES;

interface StackRun {
  firstPage: number;
  pages: number;
  /** Where the pages are; undefined when they are zero. */
  source: { layer: Layer; offset: number } | undefined;
}

export class LayerStack implements AsyncDisposable {
  readonly memoryBytes: number;
  /** Ascending, without overlap. */
  readonly runs: readonly StackRun[];
  readonly #layers: readonly Layer[];

  private constructor(memoryBytes: number, layers: readonly Layer[]) {
    this.memoryBytes = memoryBytes;
    this.#layers = layers;
    this.runs = resolve(memoryBytes, layers);
  }

  /** Oldest first. */
  static async open(layerPaths: readonly string[], memoryBytes: number): Promise<LayerStack> {
    const layers: Layer[] = [];
    try {
      for (const path of layerPaths) layers.push(await openLayer(path, memoryBytes));
      return new LayerStack(memoryBytes, layers);
    } catch (error) {
      await closeAll(layers);
      throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return closeAll(this.#layers);
  }

  /** Every page of the stack, in large pieces and ascending; `write` is not waited for before the next call. */
  copyTo(write: (bytes: Buffer, firstPage: number) => Promise<void>, signal?: AbortSignal): Promise<void> {
    return pump(
      {
        pieces: pieces(this.runs),
        read: async ({ pages, source }, buffer) => {
          const bytes = buffer.subarray(0, pages * PAGE_BYTES);
          if (source === undefined) bytes.fill(0);
          else await readFully(source.layer.handle, bytes, source.offset);
          return bytes;
        },
        write: ({ firstPage }, bytes) => write(bytes, firstPage),
      },
      signal,
    );
  }

  /** Puts those of its pages that lie in `bytes`, which begins at `firstPage`, over what is there. */
  async overlay(bytes: Buffer, firstPage: number): Promise<void> {
    const endPage = firstPage + bytes.length / PAGE_BYTES;
    for (let index = firstRunAfter(this.runs, firstPage); index < this.runs.length; index++) {
      const run = this.runs[index];
      if (run === undefined || run.firstPage >= endPage) return;
      const from = Math.max(firstPage, run.firstPage);
      const to = Math.min(endPage, run.firstPage + run.pages);
      const part = bytes.subarray((from - firstPage) * PAGE_BYTES, (to - firstPage) * PAGE_BYTES);
      if (run.source === undefined) part.fill(0);
      else await readFully(run.source.layer.handle, part, run.source.offset + (from - run.firstPage) * PAGE_BYTES);
    }
  }
}

function* pieces(runs: readonly StackRun[]): Generator<StackRun> {
  for (const { firstPage, pages, source } of runs) {
    for (let done = 0; done < pages; done += PIECE_PAGES) {
      yield {
        firstPage: firstPage + done,
        pages: Math.min(PIECE_PAGES, pages - done),
        source: source && { ...source, offset: source.offset + done * PAGE_BYTES },
      };
    }
  }
}

/** The index of the first run that ends after `page`. */
function firstRunAfter(runs: readonly StackRun[], page: number): number {
  let low = 0;
  let high = runs.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const run = runs[middle];
    if (run !== undefined && run.firstPage + run.pages <= page) low = middle + 1;
    else high = middle;
  }
  return low;
}

function resolve(memoryBytes: number, layers: readonly Layer[]): StackRun[] {
  /** Which layer has a page: its number from 1 on. */
  const owner = new Uint16Array(memoryBytes / PAGE_BYTES);
  for (const [index, { runs }] of layers.entries())
    for (const { firstPage, pages } of runs) owner.fill(index + 1, firstPage, firstPage + pages);
  const resolved: StackRun[] = [];
  for (const [index, layer] of layers.entries()) {
    for (const { firstPage, pages, kind, offset } of layer.runs) {
      const endPage = firstPage + pages;
      for (let page = firstPage; page < endPage; page++) {
        if (owner[page] !== index + 1) continue;
        const first = page;
        while (page < endPage && owner[page] === index + 1) page += 1;
        const at = offset + (first - firstPage) * PAGE_BYTES;
        resolved.push({
          firstPage: first,
          pages: page - first,
          source: kind === 'data' ? { layer, offset: at } : undefined,
        });
      }
    }
  }
  return resolved.sort((one, other) => one.firstPage - other.firstPage);
}

async function closeAll(layers: readonly Layer[]): Promise<void> {
  for (const layer of layers) await layer[Symbol.asyncDispose]();
}
