/** The one place that chooses an engine. */
import type { Logger } from '@fuse/runtime';
import { Db } from './db.ts';
import { migrate } from './migrate.ts';
import { openPglite } from './pglite.ts';
import { openPostgres } from './postgres.ts';

/** PostgreSQL at a URL, or embedded in a directory (kept) or in memory. */
export type DatabaseLocation = { url: string } | { directory: string } | 'memory';

/** Opened and migrated. */
export async function openDatabase(location: DatabaseLocation, log: Logger): Promise<Db> {
  const db = new Db(await openEngine(location, log));
  try {
    const applied = await migrate(db);
    if (applied.length > 0) log.info({ applied }, 'database migrated');
    return db;
  } catch (error) {
    await db[Symbol.asyncDispose]();
    throw error;
  }
}

async function openEngine(location: DatabaseLocation, log: Logger) {
  if (location === 'memory') return openPglite();
  return 'url' in location ? openPostgres({ url: location.url, log }) : openPglite(location.directory);
}
