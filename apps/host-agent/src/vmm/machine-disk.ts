/**
 * A VM's writable disk: a sparse raw ext4 file.
 *
 * It keeps a (small) journal: a disk that is copied from a running guest is then whole again after the journal is played, whoever mounts
 * or checks it. Leaving it out saves nothing that can be measured (500 small files, a flush, 64 MiB of zeros: the same). The file is zero
 * from the start, so nothing needs to be zeroed, neither now nor by the guest's kernel later.
 */
import { lstat, open, rm } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { runProgram } from './children.ts';
import { copySparse, stderrOf } from './sparse-copy.ts';

const JOURNAL_MIB = 16;
const GIB = 1024 ** 3;
const BLOCK_BYTES = 512;
/** What a file system takes for a file beside its bytes: where they are. */
const BOOKKEEPING_SHARE = 0.125;

/** An empty file system of `storageGb` GiB at `path`, which must not exist. */
export async function createWritableDisk(path: string, storageGb: number, signal?: AbortSignal): Promise<void> {
  const handle = await open(path, 'wx', 0o600);
  try {
    await handle.truncate(storageGb * GIB);
  } finally {
    await handle.close();
  }
  const options = [
    '-q',
    '-F',
    ...['-m', '0'],
    ...['-J', `size=${JOURNAL_MIB}`],
    ...['-E', 'assume_storage_prezeroed=1,nodiscard'],
    path,
  ];
  try {
    await runProgram('mkfs.ext4', options, { path: '/usr/sbin:/sbin:/usr/bin:/bin', signal });
  } catch (cause) {
    await rm(path, { force: true });
    signal?.throwIfAborted();
    throw new AppError('unavailable', `cannot make the file system ${path}: ${stderrOf(cause)}`, {
      cause,
      hint: 'is the package e2fsprogs installed, and is the disk full?',
    });
  }
}

/** A sparse copy (a reflink where the file system has it) at `to`, which must not exist. The source must not be written meanwhile. */
export async function copyWritableDisk(from: string, to: string, signal?: AbortSignal): Promise<void> {
  await copySparse(from, to, signal);
}

/** How it differs from what `createWritableDisk` makes, in words that follow its name: a guest does none of it, whatever it does to its disk. */
export async function faultOfDisk(path: string, storageGb: number): Promise<string | undefined> {
  const stats = await lstat(path);
  if (!stats.isFile()) return 'is no plain file';
  const bytes = storageGb * GIB;
  if (stats.size > bytes) return `is ${stats.size} bytes long, not ${bytes}`;
  // Room can be taken behind the end of a file.
  const takenBytes = stats.blocks * BLOCK_BYTES;
  return takenBytes > bytes * (1 + BOOKKEEPING_SHARE) ? `takes ${takenBytes} bytes of ${bytes}` : undefined;
}
