/** Its bytes were found damaged, or gone from where they were: nothing starts from it any more, and its row says why. */
import type { Db } from '../db/db.ts';
import { lockSnapshot, transitionSnapshot } from './snapshot-store.ts';

export async function markDamaged(db: Db, id: string, message: string): Promise<void> {
  await db.transaction(async (tx) => {
    const row = await lockSnapshot(tx, id, 'update');
    if (row?.state === 'ready' || row?.state === 'restoring')
      await transitionSnapshot(tx, row, 'error', { error: message });
  });
}
