/** The execs of a VM that is ending, as one object (host-protocol/exec-archive.ts). The newest logs are kept when not all of them fit. */
import { Readable } from 'node:stream';
import {
  type ExecArchiveIndex,
  encodeExecArchiveHead,
  type HostExec,
  MAX_ARCHIVE_INDEX_BYTES,
  MAX_ARCHIVE_LOG_BYTES,
} from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { type Logger, sleep } from '@fuse/runtime';
import { bytesOfParts, gapOf, type LogPart, type LogView, partEnd } from './log-parts.ts';

const GIVE_UP_MS = 10_000;
const RETRY_MS = 500;

/** One that has ended. */
export interface ArchivedExec {
  view(): HostExec;
  log: LogView;
}

export interface ArchivePlan {
  index: ExecArchiveIndex;
  /** In the order of the segments. */
  parts: LogPart[];
}

/** `execs` in the order of their start. */
export function planArchive(
  execs: readonly ArchivedExec[],
  maxLogBytes = MAX_ARCHIVE_LOG_BYTES,
  maxIndexBytes = MAX_ARCHIVE_INDEX_BYTES,
): ArchivePlan {
  let room = maxLogBytes;
  let indexRoom = maxIndexBytes - 1_024;
  const kept: { exec: HostExec; parts: LogPart[] }[] = [];
  for (const { view, log } of [...execs].reverse().map((each) => ({ view: each.view(), log: each.log }))) {
    const parts = partsWithin(log, room);
    const gap = gapOf({ parts, end: log.end });
    const exec = gap === undefined ? view : { ...view, log_gap: gap, log_truncated: true };
    // Per segment: three numbers and their names.
    indexRoom -= Buffer.byteLength(JSON.stringify(exec)) + 32 + parts.length * 96;
    if (indexRoom < 0) break;
    room -= sizeOf(parts);
    kept.unshift({ exec, parts });
  }
  let at = 0;
  const entries = kept.map(({ exec, parts }) => ({
    exec,
    segments: parts.map(({ offset, bytes }) => {
      at += bytes;
      return { offset, at: at - bytes, size_bytes: bytes };
    }),
  }));
  return { index: { execs: entries }, parts: kept.flatMap(({ parts }) => parts) };
}

/** The beginning of it, when that fits, and as much of its end: with one gap, as every log. */
function partsWithin({ parts, end }: LogView, maxBytes: number): LogPart[] {
  const head = parts[0]?.offset === 0 && parts[0].bytes <= maxBytes ? parts.slice(0, 1) : [];
  let room = maxBytes - sizeOf(head);
  const tail: LogPart[] = [];
  for (const part of parts.slice(head.length).reverse()) {
    const next = tail[0]?.offset ?? end;
    if (part.bytes > room || partEnd(part) !== next) break;
    room -= part.bytes;
    tail.unshift(part);
  }
  return [...head, ...tail];
}

const sizeOf = (parts: readonly LogPart[]): number => parts.reduce((sum, { bytes }) => sum + bytes, 0);

/** False when the store failed, or took nothing, for `giveUpMs`. Repeating it writes the same object again. */
export async function archiveExecs(
  store: ObjectStore,
  key: string,
  execs: readonly ArchivedExec[],
  { log, giveUpMs = GIVE_UP_MS }: { log: Logger; giveUpMs?: number },
): Promise<boolean> {
  const plan = planArchive(execs);
  const from = performance.now();
  for (;;) {
    try {
      await putOnce(store, key, plan, giveUpMs);
      return true;
    } catch (error) {
      if (performance.now() - from > giveUpMs - RETRY_MS) {
        log.error({ err: error, object_key: key, execs: execs.length }, 'execs not archived');
        return false;
      }
    }
    await sleep(RETRY_MS);
  }
}

/** Its time is up when nothing moves for so long. */
async function putOnce(store: ObjectStore, key: string, plan: ArchivePlan, stillMs: number): Promise<void> {
  const still = new AbortController();
  const onStill = () => still.abort(new Error(`the store took nothing for ${stillMs} ms`));
  let timer = setTimeout(onStill, stillMs);
  const moved = () => {
    clearTimeout(timer);
    timer = setTimeout(onStill, stillMs);
  };
  const abandoned = new Promise<never>((_, reject) => {
    still.signal.addEventListener('abort', () => reject(still.signal.reason), { once: true });
  });
  try {
    const body = Readable.from(bytesOf(plan, moved), { objectMode: false });
    const put = store.put(key, body, { signal: still.signal });
    await Promise.race([put, abandoned]);
  } finally {
    clearTimeout(timer);
  }
}

async function* bytesOf({ index, parts }: ArchivePlan, moved: () => void): AsyncGenerator<Uint8Array> {
  yield encodeExecArchiveHead(index);
  for await (const chunk of bytesOfParts(parts)) {
    moved();
    yield chunk;
  }
  moved();
}
