/** What a VMM has written to its own directory: it may be anything, and change at any time. It is copied, never renamed or linked to where others read it. */
import { constants } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { runProgram } from './children.ts';

const BLOCK_BYTES = 1_048_576;

/** A copy at `to`, which must not exist. Rejects unless it is a plain file of at most `maxBytes`; nothing is left then. */
export async function copyHostileFile(from: string, to: string, maxBytes: number): Promise<void> {
  // Opening neither follows a link nor waits for the other end of a pipe.
  const source = await open(from, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    if (!(await source.stat()).isFile()) throw new AppError('unavailable', `${from} is no plain file`);
    const target = await open(to, 'wx', 0o600);
    try {
      await copyBounded(source, target, maxBytes);
    } catch (error) {
      await rm(to, { force: true });
      throw error;
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

async function copyBounded(source: FileHandle, target: FileHandle, maxBytes: number): Promise<void> {
  const buffer = Buffer.allocUnsafe(BLOCK_BYTES);
  for (let position = 0; ; ) {
    const { bytesRead } = await source.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    if (position > maxBytes) throw new AppError('unavailable', `it is larger than ${maxBytes} bytes`);
    await target.writeFile(buffer.subarray(0, bytesRead));
  }
}

/** Of a VMM that is gone. Names that lie too deep for a path do not keep it from being removed. */
export async function removeHostileDirectory(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENAMETOOLONG') throw error;
    await runProgram('rm', ['-rf', '--', path], { path: '/usr/bin:/bin' });
  }
}
