import { CutStreamError, FuseExecLostError } from '@fuse/sdk';
import { CliError } from '../cli-error.ts';

/** A command that could not be followed to its end is named, so that it can be looked for. */
export function execError(error: unknown, id: string, execId: string): unknown {
  if (error instanceof FuseExecLostError)
    return new CliError(error.message, { hint: `what it wrote: fuse environment logs ${id} ${execId}`, cause: error });
  if (error instanceof CutStreamError)
    return new CliError(`the connection to exec ${execId} is lost; it may run on`, {
      hint: `fuse environment logs --follow ${id} ${execId}`,
      cause: error,
    });
  return error;
}
