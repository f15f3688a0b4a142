/**
 * Many who want the same rows at the same moment share one query. It begins after all of them asked, so it sees whatever any of them was woken for.
 */
import { setImmediate } from 'node:timers/promises';
import type { Db } from '../db/db.ts';

const gathering = new WeakMap<Db, Map<string, Promise<unknown>>>();

/** `key` names the query: whoever has the same key gets the same answer. */
export function readTogether<Rows>(db: Db, key: string, query: () => Promise<Rows>): Promise<Rows> {
  const open = gathering.get(db) ?? new Map<string, Promise<unknown>>();
  gathering.set(db, open);
  const shared = open.get(key) as Promise<Rows> | undefined; // the key names what it is
  if (shared !== undefined) return shared;
  const begun = setImmediate().then(() => {
    open.delete(key);
    return query();
  });
  open.set(key, begun);
  return begun;
}
