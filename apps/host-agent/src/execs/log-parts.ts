/** Where an exec's log lies on the disk: files of whole frames, each from its own offset on. Between two of them, or behind the last, there may be a gap. */
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '../vms/atomic-file.ts';

export interface LogPart {
  /** Of the log, where the file begins. */
  offset: number;
  path: string;
  /** That may be read. */
  bytes: number;
}

export interface LogView {
  parts: readonly LogPart[];
  end: number;
  /** What is in memory of it from there on; undefined when it must be read from its file. */
  recent?(position: number): Uint8Array | undefined;
}

const HEAD_NAME = 'frames';
const SEGMENT_NAME = /^frames-(\d{16})$/;

export const headPath = (directory: string): string => join(directory, HEAD_NAME);

export const segmentPath = (directory: string, offset: number): string =>
  join(directory, `${HEAD_NAME}-${String(offset).padStart(16, '0')}`);

export const partEnd = (part: LogPart): number => part.offset + part.bytes;

/** What is not kept; the parts of one log have one gap at most. */
export function gapOf({ parts, end }: LogView): { from: number; to: number } | undefined {
  let at = 0;
  for (const part of parts) {
    if (part.offset > at) return { from: at, to: part.offset };
    at = partEnd(part);
  }
  return at < end ? { from: at, to: end } : undefined;
}

/** One after the other, gaps passed over. Throws when a file holds less than its part. */
export async function* bytesOfParts(parts: readonly LogPart[]): AsyncGenerator<Uint8Array> {
  for (const { path, bytes } of parts) {
    if (bytes === 0) continue;
    let read = 0;
    for await (const chunk of createReadStream(path, { end: bytes - 1 })) {
      read += (chunk as Buffer).length; // no encoding is set
      yield chunk as Buffer;
    }
    if (read < bytes) throw new Error(`${bytes - read} bytes of a log are missing`);
  }
}

interface FoundParts {
  head: LogPart;
  segments: LogPart[];
  stale: string[];
}

export const newLog = (directory: string): FoundParts => ({
  head: { offset: 0, path: headPath(directory), bytes: 0 },
  segments: [],
  stale: [],
});

/**
 * As the files are found, with all their bytes. Only the segments that reach the last one without a gap count: what a killed process did not get
 * around to removing is in `stale`.
 */
export async function findParts(directory: string): Promise<FoundParts> {
  const head = await partAt(headPath(directory), 0);
  const segments: LogPart[] = [];
  const stale: string[] = [];
  const names = (await readdir(directory)).filter((name) => SEGMENT_NAME.test(name)).sort();
  for (const name of names.reverse()) {
    const part = await partAt(join(directory, name), Number(SEGMENT_NAME.exec(name)?.[1]));
    const next = segments[0];
    if (next !== undefined && partEnd(part) !== next.offset) stale.push(part.path);
    else segments.unshift(part);
  }
  return { head, segments, stale };
}

async function partAt(path: string, offset: number): Promise<LogPart> {
  try {
    return { offset, path, bytes: (await stat(path)).size };
  } catch (error) {
    if (isMissing(error)) return { offset, path, bytes: 0 };
    throw error;
  }
}
