/**
 * History: one row per transition, written in the transaction that makes it, announced on `channels.events`. A subject's events are ordered by `id`:
 * its transitions are compare-and-sets on one row, so no later one can commit before an earlier one. The order over all subjects is `fleet-feed.ts`'s.
 */
import { sql } from 'kysely';
import { channels, type Db, jsonb, type Queryable, type Tx } from '../db/db.ts';
import type { EventRow, EventsTable } from '../db/schema.ts';
import { readTogether } from './read-together.ts';

export type SubjectKind = EventsTable['subject_kind'];

export interface NewEvent {
  subjectKind: SubjectKind;
  /** An environment's uid, a run's id, a host's id. */
  subjectId: string;
  /** Of an environment's events: whose they are on the stream of all of them. */
  tenantId?: string;
  kind: string;
  data: Record<string, unknown>;
}

export async function recordEvent(tx: Tx, event: NewEvent): Promise<number> {
  const ids = await recordEvents(tx, [event]);
  return ids[0] ?? 0;
}

/** In the order given, in one round trip. */
export async function recordEvents(tx: Tx, events: readonly NewEvent[]): Promise<number[]> {
  const rows = await tx
    .with('added', (cte) =>
      cte
        .insertInto('events')
        .values(
          events.map((event) => ({
            subject_kind: event.subjectKind,
            subject_id: event.subjectId,
            tenant_id: event.tenantId ?? null,
            kind: event.kind,
            data: jsonb(event.data),
          })),
        )
        .returning(['id', 'subject_kind', 'subject_id']),
    )
    .selectFrom('added')
    .select(['id', sql`pg_notify(${channels.events}, subject_kind || ':' || subject_id)`.as('notified')])
    .orderBy('id')
    .execute();
  return rows.map((row) => row.id);
}

/** Oldest first, after event `afterId`. */
export function eventsAfter(
  db: Queryable,
  subjectKind: SubjectKind,
  subjectId: string,
  afterId: number,
  limit = 1_000,
): Promise<EventRow[]> {
  return db
    .selectFrom('events')
    .selectAll()
    .where('subject_kind', '=', subjectKind)
    .where('subject_id', '=', subjectId)
    .where('id', '>', afterId)
    .orderBy('id')
    .limit(limit)
    .execute();
}

export function eventById(db: Queryable, subjectKind: SubjectKind, id: number): Promise<EventRow | undefined> {
  return db
    .selectFrom('events')
    .selectAll()
    .where('id', '=', id)
    .where('subject_kind', '=', subjectKind)
    .executeTakeFirst();
}

/** Of this kind, when one is given. */
export function lastEvent(
  db: Queryable,
  subjectKind: SubjectKind,
  subjectId: string,
  kind?: string,
): Promise<EventRow | undefined> {
  let query = db
    .selectFrom('events')
    .selectAll()
    .where('subject_kind', '=', subjectKind)
    .where('subject_id', '=', subjectId);
  if (kind !== undefined) query = query.where('kind', '=', kind);
  return query.orderBy('id', 'desc').limit(1).executeTakeFirst();
}

/**
 * Follows one subject: yields its events after `afterId`, waiting for more until the signal is aborted (then it throws the reason). Followers that are
 * woken by the same event read it together.
 */
export async function* followEvents(
  hub: EventHub,
  db: Db,
  subject: { kind: SubjectKind; id: string; afterId: number },
  signal: AbortSignal,
): AsyncGenerator<EventRow> {
  let afterId = subject.afterId;
  using waiter = hub.waiter(`${subject.kind}:${subject.id}`);
  for (;;) {
    const rows = await readTogether(db, `${subject.kind}:${subject.id}:${afterId}`, () =>
      eventsAfter(db.query, subject.kind, subject.id, afterId),
    );
    for (const row of rows) {
      afterId = row.id;
      yield row;
    }
    if (rows.length === 0) await waiter.next(signal);
  }
}

/** Fans `channels.events` out inside this process: one LISTEN however many followers. */
export class EventHub implements AsyncDisposable {
  readonly #waiters: Map<string, Set<() => void>>;
  readonly #watchers: Set<(payload: string | undefined) => void>;
  readonly #subscription: AsyncDisposable;

  private constructor(
    subscription: AsyncDisposable,
    waiters: Map<string, Set<() => void>>,
    watchers: Set<(payload: string | undefined) => void>,
  ) {
    this.#subscription = subscription;
    this.#waiters = waiters;
    this.#watchers = watchers;
  }

  static async open(db: Db): Promise<EventHub> {
    const waiters = new Map<string, Set<() => void>>();
    const watchers = new Set<(payload: string | undefined) => void>();
    const subscription = await db.listen(channels.events, (payload) => {
      for (const watcher of watchers) watcher(payload);
      const chosen = payload === undefined ? [...waiters.values()] : [waiters.get(payload)];
      for (const wakes of chosen) for (const wake of [...(wakes ?? [])]) wake();
    });
    return new EventHub(subscription, waiters, watchers);
  }

  /** Register before reading the rows, then no event between reading and waiting is missed. `next` also returns now and then without news. */
  waiter(subject: string): Waiter {
    return new Waiter(this.#waiters, subject);
  }

  /** Hears of every event of any subject of this kind; undefined: some may have been missed. Must not throw. */
  watch(kind: SubjectKind, onEvent: (subjectId: string | undefined) => void): Disposable {
    const prefix = `${kind}:`;
    const watcher = (payload: string | undefined) => {
      if (payload === undefined) onEvent(undefined);
      else if (payload.startsWith(prefix)) onEvent(payload.slice(prefix.length));
    };
    this.#watchers.add(watcher);
    return { [Symbol.dispose]: () => void this.#watchers.delete(watcher) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#subscription[Symbol.asyncDispose]();
  }
}

/** Should a wake-up ever be lost, a follower is late by this much and no more. */
const LOOK_AGAIN_MS = 5_000;

class Waiter implements Disposable {
  readonly #all: Map<string, Set<() => void>>;
  readonly #subject: string;
  #woken = false;
  #resume: (() => void) | undefined;

  constructor(all: Map<string, Set<() => void>>, subject: string) {
    this.#all = all;
    this.#subject = subject;
    const mine = all.get(subject) ?? new Set();
    all.set(subject, mine);
    mine.add(this.#wake);
  }

  readonly #wake = () => {
    this.#woken = true;
    this.#resume?.();
  };

  async next(signal: AbortSignal, withinMs = LOOK_AGAIN_MS): Promise<void> {
    signal.throwIfAborted();
    if (!this.#woken) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, withinMs);
        this.#resume = () => {
          clearTimeout(timer);
          resolve();
        };
        signal.addEventListener('abort', this.#resume, { once: true });
      });
      if (this.#resume !== undefined) signal.removeEventListener('abort', this.#resume);
      this.#resume = undefined;
    }
    this.#woken = false;
    signal.throwIfAborted();
  }

  [Symbol.dispose](): void {
    const mine = this.#all.get(this.#subject);
    mine?.delete(this.#wake);
    if (mine?.size === 0) this.#all.delete(this.#subject);
  }
}
