/**
 * Writes entries of the audit log. Whoever appends while a write is under way is part of the next one: many calls at once cost few commits. An entry that
 * cannot be written is in the process's log instead, and counted; the call is answered all the same, for what it changed is changed.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { AuditEntry } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import type { Counter } from 'prom-client';
import type { Db } from '../db/db.ts';

export type NewAuditEntry = Omit<AuditEntry, 'id' | 'at'>;

export interface AuditSink {
  /** Resolves once it is durable. Never rejects. */
  append(entry: NewAuditEntry): Promise<void>;
  /** An entry is to come, and is appended when this resolves: whoever closes the log waits for it, for a while. */
  expect(appended: Promise<void>): void;
}

const EXPECTED_WITHIN_MS = 5_000;
const MAX_BATCH = 200;
const MAX_TARGET = 1_024;
const MAX_ROUTE = 256;

export class AuditLog implements AuditSink, AsyncDisposable {
  readonly #db: Db;
  readonly #log: Logger;
  readonly #lost: Counter;
  readonly #queue: { entry: NewAuditEntry; done: () => void }[] = [];
  readonly #expected = new Set<Promise<void>>();
  #writing: Promise<void> | undefined;

  constructor(db: Db, log: Logger, lost: Counter) {
    this.#db = db;
    this.#log = log;
    this.#lost = lost;
  }

  append(entry: NewAuditEntry): Promise<void> {
    return new Promise((done) => {
      this.#queue.push({ entry, done });
      this.#writing ??= this.#writeAll();
    });
  }

  expect(appended: Promise<void>): void {
    this.#expected.add(appended);
    void appended.finally(() => this.#expected.delete(appended));
  }

  async #writeAll(): Promise<void> {
    for (;;) {
      const batch = this.#queue.splice(0, MAX_BATCH);
      await this.#write(batch.map(({ entry }) => entry));
      for (const { done } of batch) done();
      if (this.#queue.length > 0) continue;
      this.#writing = undefined; // in the same breath: whoever appends from here on writes
      return;
    }
  }

  async #write(entries: readonly NewAuditEntry[]): Promise<void> {
    try {
      await this.#db.query.insertInto('audit').values(entries.map(toRow)).execute();
    } catch (error) {
      this.#lost.inc(entries.length);
      this.#log.error({ err: error, entries }, 'audit entries not written');
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const stop = new AbortController();
    const late = delay(EXPECTED_WITHIN_MS, undefined, { signal: stop.signal }).catch(() => {});
    await Promise.race([Promise.all(this.#expected), late]);
    stop.abort();
    await this.#writing;
  }
}

const toRow = (entry: NewAuditEntry) => ({
  tenant_id: entry.tenant_id ?? null,
  actor_kind: entry.actor_kind,
  actor: entry.actor ?? null,
  method: entry.method,
  route: storable(entry.route, MAX_ROUTE),
  target: entry.target === undefined ? null : storable(entry.target, MAX_TARGET),
  status: entry.status,
  code: entry.code ?? null,
  request_id: entry.request_id,
  remote: entry.remote ?? null,
});

/** What a client put into a path, as far as anybody reads it; PostgreSQL has no NUL. */
const storable = (text: string, max: number): string => text.replaceAll('\0', '\\0').slice(0, max);
