/**
 * For whatever needs a running VM (exec, attach, files): one that is paused is resumed when it may be, one that is on its way is waited for.
 */
import { AppError } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';
import { requireLive } from './drive-move.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { touchRunning } from './environment-store.ts';
import { notRunning } from './not-running.ts';

/** The idle clock may be this wrong: a write for every short command would cost more than the command. */
export const TOUCH_GRAIN_MS = 5_000;

/** Each call is shared with whoever asks for the same; aborting a wait ends nothing. */
interface Moves {
  resume(uid: string): Promise<EnvironmentRow>;
  settle(uid: string): Promise<EnvironmentRow | undefined>;
}

/** It runs, and is not idle from now on. 409 with its state when it does not and will not by itself; else whatever the resuming failed with. */
export async function ready(
  context: EnvironmentContext,
  moves: Moves,
  environment: EnvironmentRow,
  signal: AbortSignal,
): Promise<EnvironmentRow> {
  let found: EnvironmentRow | undefined = environment;
  for (;;) {
    const row = requireLive(found);
    if (row.state === 'running') {
      if (await isInUse(context, row)) return row;
      found = await whileWanted(moves.settle(row.uid), signal);
    } else if (row.state === 'resuming' || (row.state === 'pausing' && row.auto_resume))
      found = await whileWanted(moves.settle(row.uid), signal);
    else if (row.state === 'paused' && row.auto_resume) found = await whileWanted(moves.resume(row.uid), signal);
    else throw row.state === 'paused' || row.state === 'pausing' ? isPaused(row) : notRunning(row);
  }
}

/** With an idle timeout the use is written down first, so that what is being used is never paused for being idle. False: it does not run any more. */
async function isInUse(context: EnvironmentContext, row: EnvironmentRow): Promise<boolean> {
  const isFresh = Math.abs(Date.now() - row.last_activity_at.getTime()) <= TOUCH_GRAIN_MS;
  if (isFresh || (row.spec.idle_timeout_seconds ?? 0) === 0) return true;
  return touchRunning(context.db.query, row.uid);
}

const isPaused = ({ id, state }: EnvironmentRow): AppError =>
  new AppError('conflict', `vm ${id} is ${state}, not running`, {
    details: { state },
    hint: `POST /v1/environments/${id}?action=resume resumes it; with auto_resume at its creation its use does.`,
  });

/** `promise`, unless `signal` is aborted first; it goes on without us then. */
function whileWanted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason);
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    void promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}
