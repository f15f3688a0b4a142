/** Reads and writes that are whole or fail: the system may do less than it is asked for. */
import type { FileHandle } from 'node:fs/promises';
import { AppError } from '@fuse/contract';

export async function readFully(handle: FileHandle, buffer: Buffer, position: number): Promise<void> {
  for (let done = 0; done < buffer.length; ) {
    const { bytesRead } = await handle.read(buffer, done, buffer.length - done, position + done);
    if (bytesRead === 0) throw new AppError('integrity_error', 'memory ended early');
    done += bytesRead;
  }
}

export async function writeFully(handle: FileHandle, buffer: Buffer, position: number): Promise<void> {
  for (let done = 0; done < buffer.length; ) {
    const { bytesWritten } = await handle.write(buffer, done, buffer.length - done, position + done);
    done += bytesWritten;
  }
}
