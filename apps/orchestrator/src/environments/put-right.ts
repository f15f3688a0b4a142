/** A VM that its host has paused while its row says that it runs, or the other way round. The row is the truth. */

import { now } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { driveMove, type MoveContext } from './drive-move.ts';
import { environmentByUid, transition } from './environment-store.ts';

/** `row` was read before the host was asked: what changed meanwhile is left alone. */
export async function putRight(context: MoveContext, row: EnvironmentRow, signal: AbortSignal): Promise<void> {
  if (row.state === 'running') {
    const lease = { owner: context.owner, ms: context.startLeaseMs };
    const change = { lease, columns: { paused_at: now } };
    const begun = await context.db.transaction((tx) => transition(tx, row, 'resuming', change));
    if (begun !== undefined) await driveMove(context, begun, signal);
  } else if (row.state === 'paused') {
    const current = await environmentByUid(context.db.query, row.uid);
    if (current?.version !== row.version) return;
    // Resumed in this very moment it is found paused by the next comparison, and resumed again.
    const client = await context.hosts.client(row.host_id);
    await client.pauseVm(row.vm_id, signal);
  }
}
