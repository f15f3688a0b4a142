/** An exec's log as a stream of whole frames. */
import { open } from 'node:fs/promises';
import { AppError, invalidField } from '@fuse/contract';
import type { Exec } from './exec.ts';

const READ_BYTES = 64 * 1024;

export interface FollowOptions {
  offset: number;
  follow: boolean;
  signal: AbortSignal;
}

/**
 * What is there from byte `offset` on; with `follow`, then what comes, until the exec has ended. Nothing is read ahead of the reader, so that
 * one who stalls costs one buffer and slows nobody. Throws when the exec was lost: such a stream is cut, it has no end.
 */
export function followLog(exec: Exec, options: FollowOptions): AsyncGenerator<Uint8Array> {
  if (options.offset > exec.logFile.bytes)
    throw invalidField('offset', `is beyond the ${exec.logFile.bytes} bytes that the log holds`);
  return read(exec, options);
}

async function* read(exec: Exec, { offset, follow, signal }: FollowOptions): AsyncGenerator<Uint8Array> {
  const untilBytes = follow ? Number.POSITIVE_INFINITY : exec.logFile.bytes;
  let at = offset;
  let file: Awaited<ReturnType<typeof open>> | undefined;
  try {
    for (;;) {
      signal.throwIfAborted();
      const readyBytes = Math.min(exec.logFile.bytes, untilBytes) - at;
      if (readyBytes > 0) {
        file ??= await open(exec.logFile.path, 'r');
        const buffer = Buffer.allocUnsafe(Math.min(readyBytes, READ_BYTES));
        const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
        if (bytesRead === 0) throw new AppError('vm_lost', 'the log is gone');
        at += bytesRead;
        yield buffer.subarray(0, bytesRead);
      } else if (!follow) {
        return;
      } else if (!exec.running) {
        const { state, error } = exec.view();
        if (state === 'lost') throw new AppError('vm_lost', error ?? 'the exec was lost');
        return;
      } else if (exec.detached) {
        throw new AppError('unavailable', 'the host agent is stopping');
      } else {
        await exec.changes.wait({ signal });
      }
    }
  } finally {
    await file?.close();
  }
}
