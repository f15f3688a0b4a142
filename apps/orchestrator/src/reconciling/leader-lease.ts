/**
 * Who reconciles: a named row that one process holds and renews. `fence` grows each time the lease changes hands, so that a former holder
 * which slept through its end can be told apart.
 */
import { sql } from 'kysely';
import { type Db, inMs, now, type Queryable } from '../db/db.ts';

export interface HeldLease {
  fence: number;
}

/** For a process that is alone with its database: whoever held any is gone. */
export async function endLeases(db: Queryable): Promise<void> {
  await db
    .updateTable('leases')
    .set({ until: inMs(-1_000) })
    .execute();
}

export class LeaderLease {
  readonly #db: Db;
  readonly #name: string;
  readonly #owner: string;
  readonly #ms: number;

  constructor(db: Db, { name, owner, ms }: { name: string; owner: string; ms: number }) {
    this.#db = db;
    this.#name = name;
    this.#owner = owner;
    this.#ms = ms;
  }

  /** Takes or renews it; undefined while another process holds it. */
  async hold(): Promise<HeldLease | undefined> {
    const { rows } = await sql<HeldLease>`
      insert into leases as l (name, owner, fence, until) values (${this.#name}, ${this.#owner}, 1, ${inMs(this.#ms)})
      on conflict (name) do update set
        owner = excluded.owner,
        until = excluded.until,
        fence = case when l.owner = excluded.owner and l.until > now() then l.fence else l.fence + 1 end
      where l.owner = excluded.owner or l.until < now()
      returning fence`.execute(this.#db.query);
    return rows[0];
  }

  /** Asked right before what cannot be undone and is not a compare-and-set. */
  async stillHeld({ fence }: HeldLease): Promise<boolean> {
    const row = await this.#db.query
      .selectFrom('leases')
      .select('fence')
      .where('name', '=', this.#name)
      .where('owner', '=', this.#owner)
      .where('fence', '=', fence)
      .where('until', '>', now)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Over `seen`, while it is held: the database was put back to a time before that fence. */
  async raise({ fence }: HeldLease, seen: number): Promise<void> {
    await this.#db.query
      .updateTable('leases')
      .set({ fence: seen + 1 })
      .where('name', '=', this.#name)
      .where('owner', '=', this.#owner)
      .where('fence', '=', fence)
      .where('until', '>', now)
      .execute();
  }

  /** Lets another process take over at once. The row stays: fences never start anew. */
  async release(): Promise<void> {
    await this.#db.query
      .updateTable('leases')
      .set({ until: inMs(-1_000) })
      .where('name', '=', this.#name)
      .where('owner', '=', this.#owner)
      .execute();
  }
}
