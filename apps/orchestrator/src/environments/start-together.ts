/**
 * Several starts that belong together: their VMs are made side by side, and all become `running` in one transaction. When one fails, or the process
 * dies before that, none of them was ever said to run, and all are given up as any start is.
 */
import type { Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { releaseLease, transition } from './environment-store.ts';
import { runStartup } from './run-startup.ts';
import {
  createVm,
  giveUpIfStarting,
  goneMeanwhile,
  leased,
  ProcessStops,
  reasonOf,
  startError,
} from './start-environment.ts';
import { StartSteps } from './start-steps.ts';

const MAX_AT_ONCE = 16;

export interface StartTogetherOptions {
  signal: AbortSignal;
  /** Part of the transaction that makes them `running`. */
  onRunning?: ((tx: Tx, running: EnvironmentRow[]) => Promise<void>) | undefined;
  /** Awaited before the first VM is asked for. */
  before?: Promise<void> | undefined;
}

/** `rows` are provisioning and leased to this process. In their order. */
export async function startTogether(
  context: EnvironmentContext,
  rows: readonly EnvironmentRow[],
  options: StartTogetherOptions,
): Promise<EnvironmentRow[]> {
  let work = () => bootAll(context, rows, options);
  for (const row of rows) {
    const inner = work;
    work = () => leased(context, row, inner);
  }
  return work();
}

async function bootAll(
  context: EnvironmentContext,
  rows: readonly EnvironmentRow[],
  { signal, onRunning, before }: StartTogetherOptions,
): Promise<EnvironmentRow[]> {
  let failed: EnvironmentRow | undefined;
  const cards = new Map<string, boolean>();
  const steps = new Map(rows.map((row) => [row.uid, new StartSteps(context, row)]));
  const stepsOf = ({ uid }: EnvironmentRow) => steps.get(uid) ?? throwMissing(uid);
  const changeOf = (row: EnvironmentRow) => ({
    before: stepsOf(row).untold(),
    columns: { network_card: cards.get(row.uid) ?? null },
  });
  try {
    await before;
    signal.throwIfAborted();
    const failing = new AbortController();
    const either = AbortSignal.any([signal, failing.signal]);
    const queue = rows.values();
    const boot = async () => {
      for (const row of queue) {
        if (either.aborted) return;
        const start = async () => {
          const own = stepsOf(row);
          const vm = await own.take(own.first, () => createVm(context, row, { signal: either }));
          cards.set(row.uid, vm.network !== undefined);
          await runStartup(context, row, own, either);
        };
        await start().catch((error: unknown) => {
          if (failing.signal.aborted) return; // the first one's reason counts
          failed = row;
          failing.abort(error);
        });
      }
    };
    await Promise.all(Array.from({ length: MAX_AT_ONCE }, boot));
    either.throwIfAborted();
    return await context.db.transaction(async (tx) => {
      const running: EnvironmentRow[] = [];
      for (const row of rows) running.push((await transition(tx, row, 'running', changeOf(row))) ?? throwGone(row));
      await onRunning?.(tx, running);
      return running;
    });
  } catch (error) {
    const stops = signal.reason instanceof ProcessStops;
    const giveUp = (row: EnvironmentRow) =>
      stops
        ? releaseLease(context.db.query, row.uid, context.owner)
        : giveUpIfStarting(context, row.uid, reasonOf(error, signal));
    await Promise.all(rows.map(giveUp));
    throw failed === undefined ? error : startError(failed, error, signal);
  }
}

function throwMissing(uid: string): never {
  throw new Error(`environment ${uid} is not among those that start`);
}

function throwGone(row: EnvironmentRow): never {
  throw goneMeanwhile(row);
}
