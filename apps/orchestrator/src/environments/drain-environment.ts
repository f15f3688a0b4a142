/**
 * `?action=drain`: running -> draining (committed, and with that nothing new begins in it) -> all that was started in it is asked to end: SIGTERM, and SIGHUP to what
 * has a terminal, since shells do not heed the former. Resolves when nothing of it is left, or after DRAIN_MS: what does not end then runs on. It is there, to be looked
 * at and destroyed, until its lifetime ends; it never counts as idle.
 */
import { AppError } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { EnvironmentRow } from '../db/schema.ts';
import type { HostClient } from '../hosts/host-client.ts';
import { persistently } from '../hosts/host-retries.ts';
import { requireLive } from './drive-move.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentByUid, transition } from './environment-store.ts';
import { notRunning } from './not-running.ts';

const DRAIN_MS = 30_000;
const LOOK_AGAIN_MS = 200;

export async function drainEnvironment(
  context: EnvironmentContext,
  uid: string,
  signal: AbortSignal,
): Promise<EnvironmentRow> {
  const draining = await beginDrain(context, uid);
  try {
    await endAll(await context.hosts.client(draining.host_id), draining.vm_id, context.hostRetryMs, signal);
  } catch (error) {
    signal.throwIfAborted();
    await noteFailure(context, draining, error);
  }
  return requireLive(await environmentByUid(context.db.query, uid));
}

async function beginDrain(context: EnvironmentContext, uid: string): Promise<EnvironmentRow> {
  for (;;) {
    const row = requireLive(await environmentByUid(context.db.query, uid));
    if (row.state !== 'running') throw notRunning(row);
    if (row.run_id !== null)
      throw new AppError('conflict', `vm ${row.id} belongs to run ${row.run_id}`, {
        details: { state: row.state, run_id: row.run_id },
        hint: 'Cancel the run instead.',
      });
    const draining = await context.db.transaction((tx) => transition(tx, row, 'draining', { error: null }));
    if (draining !== undefined) return draining;
  }
}

/** Each exec is told once, with all that it left behind. Looks again and again: what was just about to start is not missed. */
async function endAll(client: HostClient, vmId: string, retryMs: number, signal: AbortSignal): Promise<void> {
  const until = performance.now() + DRAIN_MS;
  const told = new Set<string>();
  const look = () =>
    Promise.all([
      client.execs.list(vmId, signal),
      client.execs.processes(vmId, signal).then(({ processes }) => processes),
    ]);
  while (performance.now() < until) {
    const [execs, processes] = await persistently(retryMs, look, signal);
    const terminals = new Set(execs.filter(({ tty }) => tty !== undefined).map(({ id }) => id));
    const started = new Set(execs.filter(({ state }) => state === 'running').map(({ id }) => id));
    for (const { exec_id } of processes) if (exec_id !== undefined) started.add(exec_id);
    if (started.size === 0) return;
    for (const id of started) {
      if (told.has(id)) continue;
      told.add(id);
      await tell(client, vmId, id, 'SIGTERM', signal);
      if (terminals.has(id)) await tell(client, vmId, id, 'SIGHUP', signal);
    }
    await sleep(LOOK_AGAIN_MS, signal);
  }
}

async function tell(client: HostClient, vmId: string, execId: string, name: 'SIGTERM' | 'SIGHUP', signal: AbortSignal) {
  try {
    await client.execs.signal(vmId, execId, { signal: name, tree: true }, signal);
  } catch (error) {
    if (!(error instanceof AppError) || (error.code !== 'not_found' && error.code !== 'conflict')) throw error; // else it has ended
  }
}

/** It stays draining: nothing new begins in it. */
async function noteFailure(context: EnvironmentContext, row: EnvironmentRow, cause: unknown): Promise<never> {
  const why = cause instanceof Error ? cause.message : String(cause);
  const message = `drain of vm ${row.id}: what runs in it could not be told to end: ${why}`;
  await context.db.query
    .updateTable('environments')
    .set({ error: message })
    .where('uid', '=', row.uid)
    .where('state', '=', 'draining')
    .execute();
  context.log.warn({ err: cause, environment: row.id }, 'drain failed');
  throw new AppError('unavailable', message, {
    cause,
    details: { state: 'draining' },
    hint: 'It is draining all the same: nothing new begins in it. Destroy it when it is not needed any more.',
  });
}
