/**
 * Reads and writes that are whole or fail: the system may do less than it is asked for. Small ones are done at once: the way through the
 * thread pool takes ten times as long as the copy, and memory comes in hundreds of small runs. Whoever does many lets others have their turn.
 */
import { readSync, writeSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { AppError } from '@fuse/contract';

const AT_ONCE_BYTES = 262_144;

export async function readFully(handle: FileHandle, buffer: Buffer, position: number): Promise<void> {
  for (let done = 0; done < buffer.length; ) {
    const left = buffer.length - done;
    const bytesRead =
      left <= AT_ONCE_BYTES
        ? readSync(handle.fd, buffer, done, left, position + done)
        : (await handle.read(buffer, done, left, position + done)).bytesRead;
    if (bytesRead === 0) throw new AppError('integrity_error', 'memory ended early');
    done += bytesRead;
  }
}

export async function writeFully(handle: FileHandle, buffer: Buffer, position: number): Promise<void> {
  for (let done = 0; done < buffer.length; ) {
    const left = buffer.length - done;
    const bytesWritten =
      left <= AT_ONCE_BYTES
        ? writeSync(handle.fd, buffer, done, left, position + done)
        : (await handle.write(buffer, done, left, position + done)).bytesWritten;
    // Nothing fits into the memory of a process that has ended.
    if (bytesWritten === 0) throw new AppError('unavailable', 'memory cannot be written any more');
    done += bytesWritten;
  }
}
