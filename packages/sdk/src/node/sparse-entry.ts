/**
 * Files with large holes, as GNU tar archives them (pax format 1.0): the entry's bytes begin with a map, decimal numbers a line each, the number of pieces and then offset
 * and length of each, filled up to whole blocks; then the pieces one after the other.
 */
import type { FileHandle } from 'node:fs/promises';
import type { Header } from 'tar-stream';
import { UnsafeArchiveError } from './safe-target.ts';

const BLOCK_BYTES = 512;
const MAX_PIECES = 1_000_000;
const MAX_LINE_BYTES = 20;

export interface SparseFile {
  name: string;
  /** With its holes. */
  sizeBytes: number;
}

/** Undefined when it is not one. */
export function sparseFile({ name, pax }: Header): SparseFile | undefined {
  const fields: Partial<Record<string, string>> = pax ?? {};
  if (fields['GNU.sparse.major'] === undefined) return undefined;
  const realName = fields['GNU.sparse.name'] ?? name;
  const sizeBytes = numberIn(fields['GNU.sparse.realsize'] ?? '');
  if (fields['GNU.sparse.major'] !== '1' || fields['GNU.sparse.minor'] !== '0' || sizeBytes === undefined)
    throw new UnsafeArchiveError(realName, 'it is a sparse file of an unknown kind');
  return { name: realName, sizeBytes };
}

/** Writes the pieces where they belong; holes stay holes. */
export async function writeSparse(
  file: FileHandle,
  { name, sizeBytes }: SparseFile,
  bytes: AsyncIterable<Uint8Array>,
  onWritten: (bytes: number) => void,
): Promise<void> {
  const input = new PieceReader(bytes, name);
  const count = await input.number();
  if (count > MAX_PIECES) throw new UnsafeArchiveError(name, 'its map of holes is too long');
  const pieces: { offset: number; length: number }[] = [];
  for (let at = 0; at < count; at += 1) pieces.push({ offset: await input.number(), length: await input.number() });
  await input.skipToBlock();
  let end = 0;
  for (const { offset, length } of pieces) {
    if (offset < end || offset + length > sizeBytes) throw new UnsafeArchiveError(name, 'its map of holes is wrong');
    for (let at = offset; at < offset + length; ) {
      const chunk = await input.some(offset + length - at);
      await writeAll(file, chunk, at);
      at += chunk.length;
      onWritten(chunk.length);
    }
    end = offset + length;
  }
  await file.truncate(sizeBytes);
}

async function writeAll(file: FileHandle, chunk: Uint8Array, position: number): Promise<void> {
  for (let at = 0; at < chunk.length; )
    at += (await file.write(chunk, at, chunk.length - at, position + at)).bytesWritten;
}

class PieceReader {
  readonly #source: AsyncIterator<Uint8Array>;
  readonly #name: string;
  #chunk: Uint8Array = new Uint8Array();
  #taken = 0;

  constructor(bytes: AsyncIterable<Uint8Array>, name: string) {
    this.#source = bytes[Symbol.asyncIterator]();
    this.#name = name;
  }

  /** A line of the map. */
  async number(): Promise<number> {
    let text = '';
    for (;;) {
      const [byte = 0] = await this.some(1);
      if (byte === 0x0a) break;
      text += String.fromCharCode(byte);
      if (text.length > MAX_LINE_BYTES) break;
    }
    const number = numberIn(text);
    if (number === undefined) throw new UnsafeArchiveError(this.#name, 'its map of holes is not one');
    return number;
  }

  async skipToBlock(): Promise<void> {
    for (let left = (BLOCK_BYTES - (this.#taken % BLOCK_BYTES)) % BLOCK_BYTES; left > 0; )
      left -= (await this.some(left)).length;
  }

  /** At least one byte, at most so many. */
  async some(most: number): Promise<Uint8Array> {
    while (this.#chunk.length === 0) {
      const { done, value } = await this.#source.next();
      if (done === true) throw new UnsafeArchiveError(this.#name, 'it ends before its pieces do');
      this.#chunk = value;
    }
    const taken = this.#chunk.subarray(0, most);
    this.#chunk = this.#chunk.subarray(taken.length);
    this.#taken += taken.length;
    return taken;
  }
}

function numberIn(text: string): number | undefined {
  const number = Number(text);
  return /^\d{1,16}$/.test(text) && Number.isSafeInteger(number) ? number : undefined;
}
