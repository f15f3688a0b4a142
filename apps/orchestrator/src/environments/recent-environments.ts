/**
 * Running environments as commands in them looked them up last, so that many commands in one cost one read: kept until an event says that it changed, which on
 * embedded PostgreSQL comes before whoever changed it hears of it, elsewhere a moment later; for FRESH_MS at most; and not once its idle clock wants to be touched.
 * For uses that the host refuses when the environment is not what it was: then it is looked up again.
 */
import type { Db } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EventHub } from '../events/events.ts';
import { environmentById } from './environment-store.ts';
import { TOUCH_GRAIN_MS } from './ready.ts';

const FRESH_MS = 1_000;
const MAX_ROWS = 1_000;

export class RecentEnvironments implements Disposable {
  readonly #db: Db;
  readonly #rows = new Map<string, { row: EnvironmentRow; readAt: number }>();
  readonly #keys = new Map<string, string>();
  readonly #unwatch: Disposable;
  #changes = 0;

  constructor(db: Db, hub: EventHub) {
    this.#db = db;
    this.#unwatch = hub.watch('environment', (uid) => this.#forget(uid));
  }

  async find(tenantId: string, id: string): Promise<EnvironmentRow | undefined> {
    const key = `${tenantId}/${id}`;
    const readAt = performance.now();
    const known = this.#rows.get(key);
    if (known !== undefined && readAt - known.readAt < FRESH_MS && isInUse(known.row)) return known.row;
    const { query } = this.#db;
    const changes = this.#changes;
    const row = await environmentById(query, tenantId, id);
    // What changed while it was read may have been read before the change.
    if (row?.state === 'running' && changes === this.#changes) this.#keep(key, row, readAt);
    return row;
  }

  #keep(key: string, row: EnvironmentRow, readAt: number): void {
    if (this.#rows.size >= MAX_ROWS) this.#forget(undefined);
    this.#rows.set(key, { row, readAt });
    this.#keys.set(row.uid, key);
  }

  /** Undefined: any may have changed. */
  #forget(uid: string | undefined): void {
    this.#changes += 1;
    if (uid === undefined) {
      this.#rows.clear();
      this.#keys.clear();
      return;
    }
    const key = this.#keys.get(uid);
    if (key === undefined) return;
    this.#keys.delete(uid);
    this.#rows.delete(key);
  }

  [Symbol.dispose](): void {
    this.#unwatch[Symbol.dispose]();
  }
}

const isInUse = (row: EnvironmentRow): boolean =>
  Math.abs(Date.now() - row.last_activity_at.getTime()) <= TOUCH_GRAIN_MS;
