/**
 * One connection that LISTENs for everybody. States: closed -> connecting -> listening -> (lost) -> connecting … -> disposed.
 * After each loss every subscriber is woken with `undefined`, since notifications sent meanwhile are gone.
 */
import { type Logger, sleep } from '@fuse/runtime';
import pg from 'pg';
import { fromDatabaseError } from './database-errors.ts';
import type { Channel, Wake } from './db.ts';

const RETRY_MS = [50, 100, 250, 500, 1_000];

export class PostgresListener implements AsyncDisposable {
  readonly #config: pg.ClientConfig;
  readonly #log: Logger;
  readonly #subscribers = new Map<Channel, Set<Wake>>();
  readonly #disposed = new AbortController();
  #client: Promise<pg.Client> | undefined;

  constructor(config: pg.ClientConfig, log: Logger) {
    this.#config = config;
    this.#log = log;
  }

  async listen(channel: Channel, wake: Wake): Promise<AsyncDisposable> {
    this.#disposed.signal.throwIfAborted();
    const wakes = this.#subscribers.get(channel) ?? new Set();
    this.#subscribers.set(channel, wakes);
    wakes.add(wake);
    try {
      this.#client ??= this.#connect();
      await (await this.#client).query(`listen ${channel}`);
    } catch (error) {
      wakes.delete(wake);
      throw fromDatabaseError(error);
    }
    return {
      [Symbol.asyncDispose]: async () => {
        wakes.delete(wake);
      },
    };
  }

  async #connect(): Promise<pg.Client> {
    const client = new pg.Client({ ...this.#config, connectionTimeoutMillis: 10_000, keepAlive: true });
    let up = false;
    client.on('error', (error) => this.#log.warn({ err: error }, 'database listen connection lost'));
    client.on('end', () => {
      if (up) void this.#reconnect();
    });
    client.on('notification', ({ channel, payload }) => {
      for (const wake of [...(this.#subscribers.get(channel as Channel) ?? [])]) wake(payload ?? '');
    });
    try {
      await client.connect();
      for (const channel of this.#subscribers.keys()) await client.query(`listen ${channel}`);
    } catch (error) {
      if (this.#client !== undefined) this.#client = undefined;
      void client.end().catch(() => {});
      throw error;
    }
    up = true;
    return client;
  }

  async #reconnect(): Promise<void> {
    for (let attempt = 0; !this.#disposed.signal.aborted; attempt += 1) {
      try {
        await sleep(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 1_000, this.#disposed.signal);
        this.#client = this.#connect();
        await this.#client;
        for (const wakes of this.#subscribers.values()) for (const wake of [...wakes]) wake(undefined);
        return;
      } catch (error) {
        if (this.#disposed.signal.aborted) return;
        this.#log.warn({ err: error }, 'database listen connection not back yet');
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort();
    this.#subscribers.clear();
    const client = await this.#client?.catch(() => undefined);
    await client?.end().catch(() => {});
  }
}
