/**
 * Execs of a VM that is gone, as one object of the object store:
 *   8 bytes "FUSEEXE1" · u32 big-endian length of the index · index, JSON ExecArchiveIndex · frames
 * `at` counts from the first byte after the index. Logs are the frames of contract/frames.ts, as they were served; what is over the archive's bound was dropped
 * from the oldest execs first, and then their `log_gap` says so.
 */
import { AppError } from '@fuse/contract';
import { z } from 'zod';
import { HostExec } from './host.ts';

export const EXEC_ARCHIVE_MAGIC = 'FUSEEXE1';
/** Of all logs together. */
export const MAX_ARCHIVE_LOG_BYTES = 67_108_864;
export const MAX_ARCHIVE_INDEX_BYTES = 16_777_216;

export const ExecArchiveIndex = z.object({
  execs: z.array(
    z.object({
      exec: HostExec,
      /** In order; `offset` is that of the log where the segment begins. */
      segments: z.array(
        z.object({
          offset: z.number().int().nonnegative(),
          at: z.number().int().nonnegative(),
          size_bytes: z.number().int().nonnegative(),
        }),
      ),
    }),
  ),
});
export type ExecArchiveIndex = z.infer<typeof ExecArchiveIndex>;

export const EXEC_ARCHIVE_PREFIX_BYTES = 12;

/** The first bytes of the object; the logs follow them in the order of the segments. Throws RangeError when the index is over its bound. */
export function encodeExecArchiveHead(index: ExecArchiveIndex): Uint8Array {
  const json = new TextEncoder().encode(JSON.stringify(index));
  if (json.length > MAX_ARCHIVE_INDEX_BYTES)
    throw new RangeError(`an index of ${json.length} bytes is over ${MAX_ARCHIVE_INDEX_BYTES}`);
  const head = new Uint8Array(EXEC_ARCHIVE_PREFIX_BYTES + json.length);
  head.set(new TextEncoder().encode(EXEC_ARCHIVE_MAGIC));
  new DataView(head.buffer).setUint32(EXEC_ARCHIVE_MAGIC.length, json.length);
  head.set(json, EXEC_ARCHIVE_PREFIX_BYTES);
  return head;
}

/** Length of the index, from the first EXEC_ARCHIVE_PREFIX_BYTES of the object: the logs begin at their sum. `integrity_error` otherwise. */
export function execArchiveIndexBytes(prefix: Uint8Array): number {
  if (prefix.length < EXEC_ARCHIVE_PREFIX_BYTES) throw damaged('it is cut');
  if (new TextDecoder().decode(prefix.subarray(0, EXEC_ARCHIVE_MAGIC.length)) !== EXEC_ARCHIVE_MAGIC)
    throw damaged('it begins otherwise');
  const size = new DataView(prefix.buffer, prefix.byteOffset).getUint32(EXEC_ARCHIVE_MAGIC.length);
  if (size > MAX_ARCHIVE_INDEX_BYTES) throw damaged(`its index of ${size} bytes is too large`);
  return size;
}

/** The index from its own bytes. Every segment lies within the object, and those of one exec follow each other. `integrity_error` otherwise. */
export function decodeExecArchiveIndex(indexBytes: Uint8Array, objectBytes: number): ExecArchiveIndex {
  let index: ExecArchiveIndex;
  try {
    index = ExecArchiveIndex.parse(JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(indexBytes)));
  } catch (cause) {
    throw damaged('its index does not parse', cause);
  }
  const logBytes = objectBytes - EXEC_ARCHIVE_PREFIX_BYTES - indexBytes.length;
  for (const { segments } of index.execs) {
    let end = 0;
    for (const { offset, at, size_bytes } of segments) {
      if (at + size_bytes > logBytes) throw damaged('a log reaches beyond its end');
      if (offset < end) throw damaged('the segments of a log overlap');
      end = offset + size_bytes;
    }
  }
  return index;
}

const damaged = (why: string, cause?: unknown): AppError =>
  new AppError('integrity_error', `the archive of execs is damaged: ${why}`, { cause });
