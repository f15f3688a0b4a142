/** Writes a layer page by page, in ascending order. Pages that are all zero take no data. */
import { type FileHandle, open, rm } from 'node:fs/promises';
import { DATA_OFFSET, encodeHeader, encodeRuns, type LayerRun, PAGE_BYTES } from './layer-file.ts';
import { writeFully } from './whole-io.ts';

const zeroPage = Buffer.alloc(PAGE_BYTES);

export interface LayerSize {
  dataPages: number;
  zeroPages: number;
  fileBytes: number;
}

export class LayerWriter {
  readonly #handle: FileHandle;
  readonly #memoryBytes: number;
  readonly #runs: LayerRun[] = [];
  #dataPages = 0;
  #zeroPages = 0;

  private constructor(handle: FileHandle, memoryBytes: number) {
    this.#handle = handle;
    this.#memoryBytes = memoryBytes;
  }

  /** A layer at `path`, which must not exist, holding what `fill` appends; nothing is left when that fails. Not flushed. */
  static async write(
    path: string,
    memoryBytes: number,
    fill: (writer: LayerWriter) => Promise<void>,
  ): Promise<LayerSize> {
    const handle = await open(path, 'wx', 0o600);
    try {
      const writer = new LayerWriter(handle, memoryBytes);
      await fill(writer);
      return await writer.#finish();
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    } finally {
      await handle.close();
    }
  }

  /**
   * `bytes` holds memory from `firstPage` on; those of its pages that `isWanted` says (by their place in it) are appended. Their place in the file
   * is taken before this returns, so the next call need not wait for it; `bytes` is changed, and in use until it resolves.
   */
  append(firstPage: number, bytes: Buffer, isWanted: (index: number) => boolean): Promise<void> {
    let kept = 0;
    for (let index = 0; index * PAGE_BYTES < bytes.length; index++) {
      if (!isWanted(index)) continue;
      const at = index * PAGE_BYTES;
      if (isZeroPage(bytes, at)) {
        this.#note(firstPage + index, 'zero');
        this.#zeroPages += 1;
        continue;
      }
      this.#note(firstPage + index, 'data');
      if (at !== kept) bytes.copyWithin(kept, at, at + PAGE_BYTES);
      kept += PAGE_BYTES;
    }
    const position = DATA_OFFSET + this.#dataPages * PAGE_BYTES;
    this.#dataPages += kept / PAGE_BYTES;
    return writeFully(this.#handle, bytes.subarray(0, kept), position);
  }

  #note(page: number, kind: LayerRun['kind']): void {
    const last = this.#runs.at(-1);
    if (last?.kind === kind && last.firstPage + last.pages === page) last.pages += 1;
    else this.#runs.push({ firstPage: page, pages: 1, kind });
  }

  async #finish(): Promise<LayerSize> {
    const table = encodeRuns(this.#runs);
    const tableOffset = DATA_OFFSET + this.#dataPages * PAGE_BYTES;
    await writeFully(this.#handle, table, tableOffset);
    const header = encodeHeader({
      memoryBytes: this.#memoryBytes,
      dataPages: this.#dataPages,
      runs: this.#runs.length,
    });
    await writeFully(this.#handle, header, 0);
    return { dataPages: this.#dataPages, zeroPages: this.#zeroPages, fileBytes: tableOffset + table.length };
  }
}

export function isZeroPage(bytes: Buffer, at: number): boolean {
  return bytes[at] === 0 && bytes.compare(zeroPage, 0, PAGE_BYTES, at, at + PAGE_BYTES) === 0;
}
