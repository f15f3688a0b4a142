/**
 * A layer: the pages of guest memory that differ from what lies under it. Integers are little-endian.
 *
 *   0       magic "FUSELAYR"
 *   8  u32  version, 1
 *   12 u32  bytes in a page, 4096
 *   16 u64  bytes of memory that the layer is part of
 *   24 u64  pages of data
 *   32 u32  runs
 *   36      zero up to 4096
 *   4096    the data, page after page
 *   then    the runs, 12 bytes each, ascending, none touching another's pages: u32 first page, u32 pages, u32 kind
 *
 * Kinds: 1, data, whose pages follow those of the data run before; 2, zero, which has none. The file ends with the last run. The header is written last: a
 * layer whose writer died has none.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { readFully } from './whole-io.ts';

export const PAGE_BYTES = 4096;
const MAGIC = 'FUSELAYR';
const VERSION = 1;
const HEADER_BYTES = 36;
export const DATA_OFFSET = 4096;
const RUN_BYTES = 12;
const kindNumber = { data: 1, zero: 2 } as const;

export interface LayerRun {
  firstPage: number;
  pages: number;
  kind: 'data' | 'zero';
}

/** `offset` is where a data run's first page is in the file. */
export type PlacedRun = LayerRun & { offset: number };

export interface Layer extends AsyncDisposable {
  readonly handle: FileHandle;
  readonly memoryBytes: number;
  readonly dataPages: number;
  readonly runs: readonly PlacedRun[];
}

export function encodeHeader(layer: { memoryBytes: number; dataPages: number; runs: number }): Buffer {
  const header = Buffer.alloc(DATA_OFFSET);
  header.write(MAGIC, 0, 'latin1');
  header.writeUInt32LE(VERSION, 8);
  header.writeUInt32LE(PAGE_BYTES, 12);
  header.writeBigUInt64LE(BigInt(layer.memoryBytes), 16);
  header.writeBigUInt64LE(BigInt(layer.dataPages), 24);
  header.writeUInt32LE(layer.runs, 32);
  return header;
}

export function encodeRuns(runs: readonly LayerRun[]): Buffer {
  const table = Buffer.alloc(runs.length * RUN_BYTES);
  for (const [index, { firstPage, pages, kind }] of runs.entries()) {
    table.writeUInt32LE(firstPage, index * RUN_BYTES);
    table.writeUInt32LE(pages, index * RUN_BYTES + 4);
    table.writeUInt32LE(kindNumber[kind], index * RUN_BYTES + 8);
  }
  return table;
}

/** Of a memory of this size; anything else, or anything that is not a whole layer, is `integrity_error`. */
export async function openLayer(path: string, memoryBytes: number): Promise<Layer> {
  const handle = await open(path, 'r');
  try {
    const { size } = await handle.stat();
    const layer = await readLayer(handle, size, memoryBytes);
    return { ...layer, handle, [Symbol.asyncDispose]: () => handle.close() };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function readLayer(
  handle: FileHandle,
  size: number,
  memoryBytes: number,
): Promise<Omit<Layer, 'handle' | typeof Symbol.asyncDispose>> {
  if (size < DATA_OFFSET) throw damaged('it has no header');
  const header = Buffer.alloc(DATA_OFFSET);
  await readFully(handle, header, 0);
  if (header.toString('latin1', 0, 8) !== MAGIC) throw damaged('it is none');
  if (header.readUInt32LE(8) !== VERSION) throw damaged('its version is unknown');
  if (header.readUInt32LE(12) !== PAGE_BYTES) throw damaged('its page size is unknown');
  if (header.readBigUInt64LE(16) !== BigInt(memoryBytes)) throw damaged('it is of a memory of another size');
  if (header.subarray(HEADER_BYTES).some((byte) => byte !== 0)) throw damaged('its header is not clean');
  const memoryPages = memoryBytes / PAGE_BYTES;
  const dataPages = Number(header.readBigUInt64LE(24));
  const runCount = header.readUInt32LE(32);
  // The counts are believed only once they are known to fit the memory and the file.
  if (dataPages > memoryPages || runCount > memoryPages) throw damaged('it has more pages than the memory');
  const tableOffset = DATA_OFFSET + dataPages * PAGE_BYTES;
  if (size !== tableOffset + runCount * RUN_BYTES) throw damaged('its size is not what its header says');
  const table = Buffer.alloc(runCount * RUN_BYTES);
  await readFully(handle, table, tableOffset);
  return { memoryBytes, dataPages, runs: decodeRuns(table, { memoryPages, dataPages }) };
}

function decodeRuns(table: Buffer, bounds: { memoryPages: number; dataPages: number }): PlacedRun[] {
  const runs: PlacedRun[] = [];
  let nextPage = 0;
  let dataPages = 0;
  for (let at = 0; at < table.length; at += RUN_BYTES) {
    const firstPage = table.readUInt32LE(at);
    const pages = table.readUInt32LE(at + 4);
    const number = table.readUInt32LE(at + 8);
    const kind = number === kindNumber.data ? 'data' : number === kindNumber.zero ? 'zero' : undefined;
    if (kind === undefined) throw damaged('a run is of an unknown kind');
    if (pages === 0 || firstPage < nextPage || firstPage + pages > bounds.memoryPages)
      throw damaged('a run is out of place');
    runs.push({ firstPage, pages, kind, offset: DATA_OFFSET + dataPages * PAGE_BYTES });
    if (kind === 'data') dataPages += pages;
    nextPage = firstPage + pages;
  }
  if (dataPages !== bounds.dataPages) throw damaged('its runs have other pages than its data');
  return runs;
}

const damaged = (what: string): AppError => new AppError('integrity_error', `a memory layer is damaged: ${what}`);
