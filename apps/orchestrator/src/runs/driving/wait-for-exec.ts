/** Waiting for the command's end, cancellation and the deadline's backstop included. */
import type { HostExec } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import type { RunRow } from '../../db/schema.ts';
import { MAX_WAIT_MS } from '../../hosts/host-client.ts';
import { TIMEOUT_BACKSTOP_MS } from '../run.ts';
import type { Drive, DriveContext, Whereabouts } from './drive.ts';
import { untilHostAnswers } from './host-retries.ts';

/** A killed command whose end is not known by then is left to the destruction of its VM. */
const KILL_GRACE_MS = 10_000;

/** `exited` or `lost`; undefined when it was killed for a cancellation and the VM did not say in time that it ended. */
export async function waitForExec(
  context: DriveContext,
  drive: Drive,
  run: RunRow,
  { host, environment, execId }: Whereabouts,
): Promise<HostExec | undefined> {
  const retry = { signal: drive.stop, giveUpAfterMs: context.hostLostAfterMs };
  // The guest keeps the deadline. Counted from here also after a take-over: late, and only when the guest failed to.
  const backstopAt = performance.now() + run.timeout_ms + TIMEOUT_BACKSTOP_MS;
  let killedAt: number | undefined;
  for (;;) {
    const cancelled = drive.cancel.aborted;
    if (killedAt === undefined && (cancelled || performance.now() >= backstopAt)) {
      killedAt = performance.now();
      await untilHostAnswers(() => host.killExec(environment.vm_id, execId, drive.stop), retry);
    }
    const until = killedAt === undefined ? backstopAt : killedAt + KILL_GRACE_MS;
    const waitMs = Math.ceil(Math.min(MAX_WAIT_MS, until - performance.now()));
    if (waitMs <= 0 && killedAt !== undefined) return undefined;
    const exec = await untilCancelled(drive, cancelled, (signal) =>
      untilHostAnswers(() => host.exec(environment.vm_id, execId, Math.max(0, waitMs), signal), { ...retry, signal }),
    );
    if (exec !== undefined && exec.state !== 'running') return exec;
    // A host that answers early must not make this a busy loop.
    if (exec !== undefined) await sleep(5, drive.stop);
  }
}

/** Undefined when cancellation came meanwhile. */
async function untilCancelled<T>(
  drive: Drive,
  alreadyCancelled: boolean,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  if (alreadyCancelled) return work(drive.stop);
  try {
    return await work(AbortSignal.any([drive.stop, drive.cancel]));
  } catch (error) {
    drive.stop.throwIfAborted();
    if (drive.cancel.aborted) return undefined;
    throw error;
  }
}
