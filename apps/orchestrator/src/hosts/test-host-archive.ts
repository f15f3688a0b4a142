/** The archive of a test host's execs, as exec-archive.ts says. */
import { EXEC_ARCHIVE_MAGIC, type ExecArchiveIndex } from '@fuse/host-protocol';
import type { TestHostExec } from './test-host-exec.ts';

export function archiveExecs(execs: readonly TestHostExec[]): Buffer {
  let at = 0;
  const frames: Buffer[] = [];
  const index: ExecArchiveIndex = {
    execs: execs.map((exec) => ({
      exec: exec.status,
      segments: exec.log.segments.map(({ offset, bytes }) => {
        const segment = { offset, at, size_bytes: bytes.length };
        frames.push(bytes);
        at += bytes.length;
        return segment;
      }),
    })),
  };
  const text = Buffer.from(JSON.stringify(index));
  const size = Buffer.alloc(4);
  size.writeUInt32BE(text.length);
  return Buffer.concat([Buffer.from(EXEC_ARCHIVE_MAGIC), size, text, ...frames]);
}
