/** What goes wrong with a guest's files, with what to do about it. */
import { AppError } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';

const hints: Record<string, string> = {
  exists: 'Another name, or "overwrite" where the operation has it.',
  not_a_directory: 'A part of the path, or what it leads to, is no directory: POST …/files/stat says what is there.',
  is_a_directory:
    'A directory is read and written as a whole by GET and PUT …/tar; move, copy and remove take "recursive".',
  not_a_regular_file: 'Only regular files have bytes to read or edit: POST …/files/stat says what is there.',
  not_empty: 'With "recursive": true all that is in it is removed too.',
  no_match: 'old_text must be in the file exactly, spaces and line ends included: read the file again.',
  ambiguous: 'Give more of the surrounding text in old_text, or "replace_all": true.',
  stale_patch: 'The file is not what the patch was made for: read it again and make a new one. Nothing was changed.',
  changed: 'Somebody wrote to it meanwhile: read it again, then repeat.',
  too_large: 'Read a range of it, or work on it with a command.',
  no_space: "The environment's disk is full: remove something, or create it with more storage_gb.",
};

/** An error of the host's, as the API tells it. */
export function asFileError(row: EnvironmentRow, error: unknown): unknown {
  if (!(error instanceof AppError)) return error;
  if (error.code === 'vm_lost')
    return new AppError('vm_lost', `vm ${row.id} was lost: ${error.message}`, {
      hint: 'What it had not answered may or may not have been done.',
      cause: error,
    });
  const hint = error.hint ?? hintFor(error);
  if (hint === undefined) return error;
  const { details, status, cause } = error;
  return new AppError(error.code, error.message, {
    status,
    hint,
    cause,
    ...(details === undefined ? {} : { details }),
    ...(error.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
  });
}

function hintFor({ code, details }: AppError): string | undefined {
  if (code === 'not_found' && details?.path !== undefined) return 'POST …/files/list shows what is in a directory.';
  return code === 'conflict' ? hints[details?.reason ?? ''] : undefined;
}
