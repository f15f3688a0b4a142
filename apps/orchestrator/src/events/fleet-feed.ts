/**
 * The events of all environments in the order of `event-order.ts`, read once for any number of followers: one reader while there is one, and the latest
 * KEPT events in memory. Each follower goes through them at its own pace; one that fell behind reads the rows itself until it has caught up. Nothing is
 * queued for anybody.
 */
import { setMaxListeners } from 'node:events';
import { type Logger, sleep } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { EventRow } from '../db/schema.ts';
import { isBefore, lastInOrder, nextInOrder, type Position, positionOf, toldBetween } from './event-order.ts';
import type { EventHub } from './events.ts';

const KEPT = 4_096;
const PAGE = 500;
/** Handed to a follower at a time: all that it holds of what is no longer kept. */
const SLICE = 64;
/** Should a wake-up ever be lost. */
const LOOK_AGAIN_MS = 5_000;
/** While transactions are under way that may have an event of theirs in between. */
const UNSETTLED_MS = [5, 10, 25, 50, 100, 250] as const;
const RETRY_MS = 1_000;

export interface FedEvent {
  position: Position;
  row: EventRow;
}

export class FleetFeed {
  readonly #db: Db;
  readonly #hub: EventHub;
  readonly #log: Logger;
  #reading: Reading | undefined;
  #followers = 0;

  constructor(db: Db, hub: EventHub, log: Logger) {
    this.#db = db;
    this.#hub = hub;
    this.#log = log;
  }

  /** Everything after `from`, of one tenant or of all, until the signal is aborted: then it throws the reason. */
  async *follow(from: Position, tenantId: string | undefined, signal: AbortSignal): AsyncGenerator<FedEvent> {
    const reading = this.#join();
    try {
      await reading.begun(signal);
      let at = from;
      for (;;) {
        signal.throwIfAborted();
        if (isBefore(at, reading.floor)) {
          const to = reading.head;
          const rows = await toldBetween(this.#db.query, { from: at, to, tenantId, limit: PAGE });
          for (const row of rows) {
            at = positionOf(row);
            yield { position: at, row };
          }
          if (rows.length < PAGE && isBefore(at, to)) at = to;
          continue;
        }
        const next = reading.after(at, SLICE);
        for (const event of next) {
          at = event.position;
          if (tenantId === undefined || event.row.tenant_id === tenantId) yield event;
        }
        if (next.length === 0) await reading.moved(at, signal);
      }
    } finally {
      this.#leave(reading);
    }
  }

  #join(): Reading {
    this.#followers += 1;
    this.#reading ??= new Reading(this.#db, this.#hub, this.#log);
    return this.#reading;
  }

  #leave(reading: Reading): void {
    this.#followers -= 1;
    if (this.#followers > 0) return;
    this.#reading = undefined;
    reading.stop();
  }
}

/** One reader, from its first follower to its last. */
class Reading {
  /** Everything up to here was read. */
  head: Position = { xid: 0n, id: 0n };
  /** What came after this, up to `head`, is in memory. */
  floor: Position = { xid: 0n, id: 0n };
  readonly #db: Db;
  readonly #log: Logger;
  readonly #kept: FedEvent[] = [];
  readonly #stop = new AbortController();
  readonly #waiting = new Set<() => void>();
  readonly #unwatch: Disposable;
  #hasBegun = false;
  #news = false;
  #wakeReader: (() => void) | undefined;

  constructor(db: Db, hub: EventHub, log: Logger) {
    this.#db = db;
    this.#log = log;
    setMaxListeners(0, this.#stop.signal);
    this.#unwatch = hub.watch('environment', () => {
      this.#news = true;
      this.#wakeReader?.();
    });
    void this.#run();
  }

  stop(): void {
    this.#unwatch[Symbol.dispose]();
    this.#stop.abort(new Error('nobody follows'));
  }

  async begun(signal: AbortSignal): Promise<void> {
    while (!this.#hasBegun) await this.#wait(signal);
  }

  /** The next ones after a position that is not before `floor`. */
  after(at: Position, limit: number): FedEvent[] {
    let low = 0;
    let high = this.#kept.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const event = this.#kept[middle];
      if (event !== undefined && isBefore(at, event.position)) high = middle;
      else low = middle + 1;
    }
    return this.#kept.slice(low, low + limit);
  }

  async moved(at: Position, signal: AbortSignal): Promise<void> {
    if (!isBefore(at, this.head)) await this.#wait(signal);
  }

  #wait(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const wake = () => {
        leave();
        resolve();
      };
      const onAbort = () => {
        leave();
        reject(signal.reason);
      };
      const leave = () => {
        this.#waiting.delete(wake);
        signal.removeEventListener('abort', onAbort);
      };
      if (signal.aborted) return onAbort();
      this.#waiting.add(wake);
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    let unsettled = 0;
    while (!signal.aborted) {
      try {
        this.#news = false;
        if (!this.#hasBegun) await this.#begin();
        const { rows, isSettled } = await nextInOrder(this.#db.query, this.head, PAGE);
        this.#keep(rows);
        if (rows.length === PAGE) continue;
        const pauseMs = UNSETTLED_MS[Math.min(unsettled, UNSETTLED_MS.length - 1)] ?? RETRY_MS;
        unsettled = isSettled ? 0 : unsettled + 1;
        if (isSettled) await this.#forNews();
        else await sleep(pauseMs, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#log.warn({ err: error }, 'events of all environments not read, tried again');
        await sleep(RETRY_MS, signal).catch(() => {}); // stopped
      }
    }
  }

  async #begin(): Promise<void> {
    this.head = await lastInOrder(this.#db.query);
    this.floor = this.head;
    this.#hasBegun = true;
    this.#wakeAll();
  }

  #keep(rows: readonly EventRow[]): void {
    const last = rows.at(-1);
    if (last === undefined) return;
    for (const row of rows) this.#kept.push({ position: positionOf(row), row });
    const dropped = this.#kept.splice(0, Math.max(0, this.#kept.length - KEPT));
    this.floor = dropped.at(-1)?.position ?? this.floor;
    this.head = positionOf(last);
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  async #forNews(): Promise<void> {
    const { signal } = this.#stop;
    if (this.#news || signal.aborted) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, LOOK_AGAIN_MS);
      this.#wakeReader = () => {
        clearTimeout(timer);
        resolve();
      };
      signal.addEventListener('abort', this.#wakeReader, { once: true });
    });
    if (this.#wakeReader !== undefined) signal.removeEventListener('abort', this.#wakeReader);
    this.#wakeReader = undefined;
  }
}
