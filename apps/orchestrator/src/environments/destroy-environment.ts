/** Any state -> destroying (committed) -> the host's VM gone with every trace -> destroyed. May be begun by one process and finished by another. */
import { sleep } from '@fuse/runtime';
import { inMs, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { type ArchiveColumns, archiveKeyOf, destroyVm } from './destroy-vm.ts';
import { isGone } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { environmentByUid, transition } from './environment-store.ts';

const LOOK_AGAIN_MS = 250;

/** `markDestroying` as part of the caller's transaction; nothing happens when it is going or gone already. */
export async function markDestroyingIn(tx: Tx, uid: string, reason: string | undefined): Promise<void> {
  for (;;) {
    const row = await environmentByUid(tx, uid);
    if (row === undefined || row.state === 'destroying' || isGone(row.state)) return;
    if ((await transition(tx, row, 'destroying', reason)) !== undefined) return;
  }
}

/** Undefined: it was gone already. */
export async function markDestroying(
  context: EnvironmentContext,
  uid: string,
  reason: string | undefined,
): Promise<EnvironmentRow | undefined> {
  for (;;) {
    const row = await environmentByUid(context.db.query, uid);
    if (row === undefined || isGone(row.state)) return undefined;
    if (row.state === 'destroying') return row;
    const changed = await context.db.transaction((tx) => transition(tx, row, 'destroying', reason));
    if (changed !== undefined) return changed;
  }
}

/** `row` is destroying. Resolves with the host's own time once it is destroyed, by us or by somebody else. */
export async function finishDestroying(context: EnvironmentContext, row: EnvironmentRow): Promise<number | undefined> {
  const { destroyMs, columns = {} } = row.host_id === null ? {} : await untilDestroyed(context, row);
  await context.db.transaction((tx) => transition(tx, row, 'destroyed', { columns }));
  return destroyMs;
}

async function untilDestroyed(
  context: EnvironmentContext,
  row: EnvironmentRow,
): Promise<{ destroyMs?: number; columns?: ArchiveColumns }> {
  const client = await context.hosts.client(row.host_id);
  const giveUpAt = performance.now() + context.hostRetryMs;
  for (;;) {
    try {
      return await destroyVm(context, row, client);
    } catch (error) {
      if (!isHostUnreachable(error)) throw error;
      const current = await environmentByUid(context.db.query, row.uid);
      if (current === undefined || isGone(current.state)) return {}; // its host was declared lost meanwhile
      if (performance.now() > giveUpAt) throw error;
      await sleep(LOOK_AGAIN_MS);
    }
  }
}

/** Of one that is gone already: what is left of it on its host goes, its execs stay readable. */
export async function discardVm(context: EnvironmentContext, row: EnvironmentRow): Promise<void> {
  const client = await context.hosts.client(row.host_id);
  const keep = (columns: ArchiveColumns) =>
    context.db.query.updateTable('environments').set(columns).where('uid', '=', row.uid).execute();
  // First, so that there is never an object that no row knows of.
  if (row.run_id === null && row.archive_key === null)
    await keep({ archive_key: archiveKeyOf(row.uid), archive_until: inMs(context.archiving.retentionMs) });
  const { columns } = await destroyVm(context, row, client);
  if (columns.archive_key === undefined) await keep({ archive_key: null, archive_until: null });
}
