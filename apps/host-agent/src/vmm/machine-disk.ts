/** A VM's writable disk: a sparse raw ext4 file. */
import { AppError } from '@fuse/contract';

/** An empty file system of `storageGb` GiB at `path`, which must not exist. */
export async function createWritableDisk(_path: string, _storageGb: number, _signal?: AbortSignal): Promise<void> {
  throw new AppError('unimplemented', 'writable disk');
}

/** A sparse copy (a reflink where the file system has it) at `to`, which must not exist. The source must not be written meanwhile. */
export async function copyWritableDisk(_from: string, _to: string, _signal?: AbortSignal): Promise<void> {
  throw new AppError('unimplemented', 'writable disk');
}
