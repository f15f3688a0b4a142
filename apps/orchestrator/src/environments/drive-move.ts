/**
 * Between running and paused, both ways: running -> pausing -> paused, paused -> resuming -> running.
 * The transitional state is committed first, leased to whoever drives it. The host is asked, as often as it takes, and what it says of its VM
 * becomes the truth: there; back where it was, with the reason; dead: failed. While it cannot be asked the row stays as it is, its lease is
 * given up, and anybody (the next caller, the reconciler of any replica) goes on.
 */
import { AppError, type EnvironmentState } from '@fuse/contract';
import type { HostVm } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { now } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { HostClient } from '../hosts/host-client.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { settleNetwork } from '../network/enforce-network.ts';
import { isGone } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { type Change, environmentByUid, releaseLease, takeLease, transition } from './environment-store.ts';
import { putToken } from './environment-token.ts';
import { leased } from './start-environment.ts';

const LOOK_AGAIN_MS = 100;

/** What this process drives now, by uid: whoever comes for the same waits for that. */
export interface MoveContext extends EnvironmentContext {
  driving: Map<string, Promise<unknown>>;
}

interface Move {
  verb: 'pause' | 'resume';
  to: 'paused' | 'running';
  /** Where it is when its host could not. */
  back: 'running' | 'paused';
  /** What becomes true on arrival. */
  columns: NonNullable<Change['columns']>;
  /** And back where it was. */
  columnsBack: NonNullable<Change['columns']>;
  ask(client: HostClient, vmId: string, signal: AbortSignal): Promise<HostVm>;
  /** Done once its VM is there. */
  arrived?(context: EnvironmentContext, row: EnvironmentRow, signal: AbortSignal): Promise<void>;
}

const moves: Partial<Record<EnvironmentState, Move>> = {
  pausing: {
    verb: 'pause',
    to: 'paused',
    back: 'running',
    columns: { paused_at: now },
    columnsBack: { last_activity_at: now }, // so that an idle one is not tried at once again
    ask: (client, vmId, signal) => client.pauseVm(vmId, signal),
  },
  resuming: {
    verb: 'resume',
    to: 'running',
    back: 'paused',
    columns: { paused_at: null, last_activity_at: now },
    columnsBack: {},
    ask: (client, vmId, signal) => client.resumeVm(vmId, signal),
    arrived: putToken,
  },
};

/** The row, unless it is gone: whoever asks has seen it live. */
export function requireLive(row: EnvironmentRow | undefined): EnvironmentRow {
  if (row?.state === 'failed')
    throw new AppError('vm_lost', `vm ${row.id} was lost: ${row.error ?? 'no reason known'}`);
  if (row === undefined || isGone(row.state)) throw new AppError('not_found', `vm ${row?.id ?? ''} not found`);
  return row;
}

/** For one that is `pausing` or `resuming`: goes on with it when nobody else does, else waits a moment. The caller looks again. */
export async function driveOrWait(
  context: MoveContext,
  row: EnvironmentRow,
  signal: AbortSignal,
): Promise<EnvironmentRow | undefined> {
  const underway = context.driving.get(row.uid);
  if (underway !== undefined) {
    await underway.catch(() => {}); // told to whoever began it
    return undefined;
  }
  const isRestore = row.restore_id !== null; // driven by whoever restores
  if (!isRestore && (await takeLease(context.db.query, row.uid, context.owner, context.startLeaseMs)))
    return driveMove(context, row, signal);
  await sleep(LOOK_AGAIN_MS, signal);
  return undefined;
}

/** Until it is neither `pausing` nor `resuming`, whoever drives it. Begins nothing. */
export async function settle(
  context: MoveContext,
  uid: string,
  signal: AbortSignal,
): Promise<EnvironmentRow | undefined> {
  for (;;) {
    const row = await environmentByUid(context.db.query, uid);
    if (row === undefined || moves[row.state] === undefined) return row;
    await driveOrWait(context, row, signal);
  }
}

/**
 * `row` is pausing or resuming and leased to us. Resolves with it there; undefined when somebody else changed it meanwhile. Rejects when the host
 * could not, or could not be asked.
 */
export function driveMove(
  context: MoveContext,
  row: EnvironmentRow,
  signal: AbortSignal,
): Promise<EnvironmentRow | undefined> {
  const promise = drive(context, row, signal).finally(() => {
    if (context.driving.get(row.uid) === promise) context.driving.delete(row.uid);
  });
  context.driving.set(row.uid, promise);
  return promise;
}

async function drive(
  context: EnvironmentContext,
  row: EnvironmentRow,
  signal: AbortSignal,
): Promise<EnvironmentRow | undefined> {
  const move = moves[row.state];
  if (move === undefined) throw new Error(`environment ${row.uid} is ${row.state}: not on its way`);
  return leased(context, row, async () => {
    const { vm, refusal } = await askHost(context, row, move, signal);
    const become = (state: EnvironmentState, change: Change) =>
      context.db.transaction((tx) => transition(tx, row, state, change));
    if (vm?.state === move.to) return become(move.to, { error: null, columns: move.columns });
    if (vm?.state === 'dead') {
      const reason = vm.error ?? 'the vm died';
      if ((await become('failed', { error: reason })) === undefined) return undefined;
      throw new AppError('vm_lost', `${move.verb} vm ${row.id}: its VM died: ${reason}`, { cause: refusal });
    }
    const error = moveError(row, move, refusal ?? new Error(`its host says that it is ${vm?.state}`));
    if (vm?.state === move.back) {
      context.log.warn({ err: error, environment: row.id, vm_id: row.vm_id }, `${move.verb} failed`);
      const change = { error: error.message, columns: move.columnsBack };
      if ((await become(move.back, change)) === undefined) return undefined;
    } else {
      await releaseLease(context.db.query, row.uid, context.owner);
      signal.throwIfAborted();
      if ((await environmentByUid(context.db.query, row.uid))?.version !== row.version) return undefined;
    }
    throw error;
  });
}

/** What the host did, or what it says of the VM after it refused. Without a VM: nothing is known. */
async function askHost(
  context: EnvironmentContext,
  row: EnvironmentRow,
  move: Move,
  signal: AbortSignal,
): Promise<{ vm?: HostVm; refusal?: unknown }> {
  const giveUpAt = performance.now() + context.hostRetryMs;
  for (;;) {
    try {
      const client = await context.hosts.client(row.host_id);
      const vm = await move.ask(client, row.vm_id, signal);
      if (vm.state === 'running') await settleNetwork(context, row.uid, vm, signal);
      if (vm.state === move.to) await move.arrived?.(context, row, signal);
      return { vm };
    } catch (refusal) {
      if (signal.aborted) return { refusal };
      if (!isHostUnreachable(refusal)) return { refusal, ...(await stateOf(context, row)) };
      if (performance.now() > giveUpAt) return { refusal };
    }
    await sleep(LOOK_AGAIN_MS, signal).catch(() => {}); // asked once more, which says so
  }
}

async function stateOf(context: EnvironmentContext, row: EnvironmentRow): Promise<{ vm?: HostVm }> {
  try {
    const client = await context.hosts.client(row.host_id);
    return { vm: await client.vm(row.vm_id) };
  } catch (error) {
    // Missing ones are judged where hosts are compared, after a grace: its agent may have restarted just now.
    context.log.warn({ err: error, environment: row.id, vm_id: row.vm_id }, 'state of a VM not known');
    return {};
  }
}

function moveError(row: EnvironmentRow, { verb }: Move, cause: unknown): AppError {
  const message = `${verb} vm ${row.id}: ${cause instanceof Error ? cause.message : String(cause)}`;
  if (!(cause instanceof AppError) || cause.code === 'internal') return new AppError('internal', message, { cause });
  if (cause.code === 'integrity_error')
    return new AppError('integrity_error', message, {
      cause,
      hint: 'Its memory is damaged: start another environment from a snapshot of it.',
    });
  return new AppError('unavailable', message, {
    cause,
    details: { ...cause.details, state: row.state },
    hint: `Ask again: ${verb} may be repeated.`,
    retryAfterSeconds: cause.retryAfterSeconds ?? 5,
  });
}
