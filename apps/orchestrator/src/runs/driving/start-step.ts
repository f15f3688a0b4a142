/** starting -> running: the VM is up, its files are in place. The command was not started yet, so all of it may be repeated. */
import { AppError } from '@fuse/contract';
import { now, type Tx } from '../../db/db.ts';
import type { RunRow } from '../../db/schema.ts';
import { isHostUnreachable } from '../../hosts/host-transport.ts';
import { moveRun } from '../run-store.ts';
import { storableText } from '../storable-text.ts';
import {
  type Drive,
  type DriveContext,
  environmentUidOf,
  requestOf,
  setWhereabouts,
  type Whereabouts,
} from './drive.ts';
import { endRun } from './end-run.ts';
import { hasCode, untilHostAnswers } from './host-retries.ts';

export async function startStep(context: DriveContext, drive: Drive, run: RunRow): Promise<RunRow> {
  const wanted = AbortSignal.any([drive.stop, drive.cancel]);
  const environmentUid = environmentUidOf(run);
  const markRunning = async (tx: Tx) => {
    running = await moveRun(tx, drive.hold, { from: 'starting', to: 'running', set: { started_at: now } });
  };
  let running: RunRow | undefined;
  let handedOver = false;
  try {
    const environment = await context.environments.start(environmentUid, {
      signal: wanted,
      heldByRun: true,
      admitted: drive.admitted,
      // One commit for both, when nothing has to happen in between.
      ...(requestOf(run).files.length === 0 ? { onRunning: markRunning } : {}),
    });
    handedOver = true;
    const at = setWhereabouts(drive, environment, await context.environments.hostOf(environment));
    await context.checkpoint('vm started', run.id);
    if (running === undefined) {
      await putFiles(context, run, at, wanted);
      await context.checkpoint('files put', run.id);
    }
    wanted.throwIfAborted();
  } catch (error) {
    drive.stop.throwIfAborted();
    const current = running ?? run;
    if (drive.cancel.aborted) return endRun(context, drive, current, { to: 'cancelled' });
    const environment = await context.environments.get(context.db.query, environmentUid);
    // Not the environment's failure then, but ours: worth another try.
    if (!(error instanceof AppError) || environment?.state === 'provisioning') throw error;
    const code = handedOver && !isVmTrouble(error) ? 'input_failed' : 'start_failed';
    return endRun(context, drive, current, { to: 'failed', failure: { code, message: storableText(error.message) } });
  }
  running ??= await context.db.transaction((tx) =>
    moveRun(tx, drive.hold, { from: 'starting', to: 'running', set: { started_at: now } }),
  );
  drive.markedRunning = true;
  await context.checkpoint('marked running', run.id);
  return running;
}

export async function putFiles(
  context: DriveContext,
  run: RunRow,
  { host, environment }: Whereabouts,
  signal: AbortSignal,
): Promise<void> {
  const files = requestOf(run).files.map(({ path, mode, object_key, sha256 }) => ({ path, mode, object_key, sha256 }));
  if (files.length === 0) return;
  await untilHostAnswers(() => host.putFiles(environment.vm_id, { files }, signal), {
    signal,
    giveUpAfterMs: context.hostLostAfterMs,
  });
}

const isVmTrouble = (error: AppError): boolean => isHostUnreachable(error) || hasCode(error, 'not_found', 'vm_lost');
