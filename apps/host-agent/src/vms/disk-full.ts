/** Room on the host's disk. */
import { statfs } from 'node:fs/promises';
import { AppError } from '@fuse/contract';

export function isDiskFull(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'ENOSPC' || code === 'EDQUOT';
}

export async function freeDiskBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}

/** Refuses with 503 when less than the reserve is free. */
export async function requireFreeDisk(directory: string, reserveBytes: number): Promise<void> {
  if ((await freeDiskBytes(directory)) < reserveBytes) throw diskFullError();
}

export function diskFullError(cause?: unknown): AppError {
  return new AppError('unavailable', "the host's disk is nearly full", {
    cause,
    hint: 'destroy environments that are no longer needed, or add disk to the host',
    retryAfterSeconds: 30,
  });
}
