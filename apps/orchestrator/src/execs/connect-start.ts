/** The exec of something that is going to be connected to: there once it resolves, whether it was before or not. */
import { AppError } from '@fuse/contract';
import type { HostExec, StartExec } from '@fuse/host-protocol';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { persistently } from '../hosts/host-retries.ts';

const MAX_TRIES = 3;

export interface ConnectParts {
  context: EnvironmentContext;
  environments: EnvironmentService;
}

/** `row` as it is once its VM runs. Refused programs are 400 naming `cmd`. */
export async function startForConnection(
  { context, environments }: ConnectParts,
  found: EnvironmentRow,
  { execId, command, signal }: { execId: string; command: StartExec; signal: AbortSignal },
): Promise<{ row: EnvironmentRow; exec: HostExec }> {
  let row = found;
  for (let tries = 1; ; tries += 1) {
    row = await environments.ready(row, signal);
    const { vm_id: vmId } = row;
    const client = await context.hosts.client(row.host_id);
    try {
      const start = () => client.startExec(vmId, execId, command, signal);
      return { row, exec: await persistently(context.hostRetryMs, start, signal) };
    } catch (error) {
      // Paused between the look and the start.
      const now = await environments.get(context.db.query, row.uid);
      const hasMoved = now !== undefined && now.version !== row.version;
      const isConflict = error instanceof AppError && error.code === 'conflict';
      if (!isConflict || !hasMoved || tries >= MAX_TRIES) throw asStartError(error);
      row = now;
    }
  }
}

function asStartError(error: unknown): unknown {
  if (!(error instanceof AppError)) return error;
  // The host does not know the VM any more.
  if (error.code === 'not_found') return new AppError('vm_lost', error.message, { cause: error });
  if (error.details?.reason !== 'exec_failed') return error;
  return new AppError('invalid_argument', error.message, {
    details: { ...error.details, field: 'cmd' },
    hint: 'Program, working directory and user must exist in the environment, and the program be executable.',
    cause: error,
  });
}
