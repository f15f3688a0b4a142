/** Environments that are gone, and the execs of them that can still be read. */
import { now, type Queryable } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';

/** Of one id, that are looked through. */
const MAX_GONE = 50;

/** Newest first; those of runs keep their logs elsewhere. Of a failed one the host may still have what it wrote. */
export function goneEnvironments(db: Queryable, tenantId: string, id: string): Promise<EnvironmentRow[]> {
  return db
    .selectFrom('environments')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('id', '=', id)
    .where('gone_at', 'is not', null)
    .where('run_id', 'is', null)
    .orderBy('gone_at', 'desc')
    .limit(MAX_GONE)
    .execute();
}

export function expiredArchives(db: Queryable, limit: number): Promise<{ uid: string; archive_key: string }[]> {
  return db
    .selectFrom('environments')
    .select(['uid', 'archive_key'])
    .where('archive_key', 'is not', null)
    .where('archive_until', '<', now)
    .orderBy('archive_until')
    .limit(limit)
    .$narrowType<{ archive_key: string }>()
    .execute();
}

export async function forgetArchive(db: Queryable, uid: string): Promise<void> {
  await db.updateTable('environments').set({ archive_key: null, archive_until: null }).where('uid', '=', uid).execute();
}
