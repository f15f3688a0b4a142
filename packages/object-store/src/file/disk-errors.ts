import { AppError } from '@fuse/contract';

export const errorCode = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;

export const isMissing = (error: unknown): boolean => ['ENOENT', 'ENOTDIR'].includes(errorCode(error) ?? '');

/** The store's own disk operations go through here; a failing source stream must keep its own error. */
export async function onDisk<T>(operation: Promise<T>): Promise<T> {
  try {
    return await operation;
  } catch (error) {
    throw diskError(error);
  }
}

/** AppErrors (of damage, of limits) pass. Paths stay in the cause, which is logged and never shown to clients. */
function diskError(cause: unknown): unknown {
  const code = errorCode(cause);
  if (code === undefined || cause instanceof AppError) return cause;
  switch (code) {
    case 'ENOSPC':
    case 'EDQUOT':
      return unavailable(
        'full',
        'the object store has no space left',
        'free space on its disk or raise its quota',
        cause,
      );
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return unavailable(
        'permission',
        `the object store's directory refuses access (${code})`,
        'let the user that Fuse runs as read and write it',
        cause,
      );
    case 'EEXIST':
    case 'EISDIR':
    case 'ENOTDIR':
    case 'ENOTEMPTY':
      return new AppError('conflict', 'the key is a folder of other keys, or lies below another key', { cause });
    default:
      return unavailable(
        'disk',
        `the object store's disk failed (${code})`,
        'look at the log for the failing path',
        cause,
      );
  }
}

const unavailable = (reason: string, message: string, hint: string, cause: unknown): AppError =>
  new AppError('unavailable', message, { details: { reason }, hint, cause });
