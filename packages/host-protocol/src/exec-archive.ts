/**
 * Execs of a VM that is gone, as one object of the object store:
 *   8 bytes "FUSEEXE1" · u32 big-endian length of the index · index, JSON ExecArchiveIndex · frames
 * `at` counts from the first byte after the index. Logs are the frames of contract/frames.ts, as they were served; what is over the archive's bound was dropped
 * from the oldest execs first, and then their `log_gap` says so.
 */
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
