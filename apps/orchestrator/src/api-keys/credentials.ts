/**
 * Looks credentials up, and remembers them for CACHED_MS at most. A revocation is announced (`channels.credentials`), which empties the memory of every replica; an
 * announcement that got lost costs CACHED_MS. What is open is held by its proof and cut when that is good no more: asked on each announcement and every CACHED_MS, which
 * finds what expired too. Together: no credential outlives its end by a second.
 */
import { type Logger, sleep } from '@fuse/runtime';
import { channels, type Db } from '../db/db.ts';
import type { CredentialSource } from '../http/callers.ts';
import {
  findApiKey,
  findEnvironmentByToken,
  findSession,
  goodProofs,
  hashOfSession,
  hashOfToken,
  hasTenant,
  type KnownApiKey,
  type KnownEnvironment,
} from './credential-store.ts';

const CACHED_MS = 500;
const MAX_CACHED = 10_000;

interface Remembered {
  found: Promise<unknown>;
  atMs: number;
}

export class Credentials implements CredentialSource, AsyncDisposable {
  readonly #db: Db;
  readonly #log: Logger;
  readonly #masterToken: string | undefined;
  readonly #remembered = new Map<string, Remembered>();
  readonly #held = new Map<string, Set<() => void>>();
  readonly #stop = new AbortController();
  #subscription: AsyncDisposable | undefined;
  #watching: Promise<void> = Promise.resolve();
  #checking: Promise<void> = Promise.resolve();

  private constructor(db: Db, { log, masterToken }: { log: Logger; masterToken: string | undefined }) {
    this.#db = db;
    this.#log = log;
    this.#masterToken = masterToken;
  }

  static async open(db: Db, options: { log: Logger; masterToken: string | undefined }): Promise<Credentials> {
    const credentials = new Credentials(db, options);
    credentials.#subscription = await db.listen(channels.credentials, () => {
      credentials.#forgetThenCheck();
    });
    credentials.#watching = credentials.#watch();
    return credentials;
  }

  apiKey(key: string): Promise<KnownApiKey | undefined> {
    const hash = hashOfToken(key);
    return this.#remember(`api_key:${hash.toString('hex')}`, () => findApiKey(this.#db.query, hash));
  }

  /** Always asked: its id may be another one's the moment it is gone. */
  environment(token: string): Promise<KnownEnvironment | undefined> {
    return findEnvironmentByToken(this.#db.query, hashOfToken(token));
  }

  async session(secret: string): Promise<string | undefined> {
    if (this.#masterToken === undefined) return undefined;
    const hash = hashOfSession(secret, this.#masterToken);
    return this.#remember(`session:${hash.toString('hex')}`, () => findSession(this.#db.query, hash));
  }

  async hasTenant(id: string): Promise<boolean> {
    const found = await this.#remember(`tenant:${id}`, async () => (await hasTenant(this.#db.query, id)) || undefined);
    return found === true;
  }

  hold(proof: string, cut: () => void): Disposable {
    const cuts = this.#held.get(proof) ?? new Set();
    this.#held.set(proof, cuts);
    cuts.add(cut);
    return {
      [Symbol.dispose]: () => {
        cuts.delete(cut);
        if (cuts.size === 0 && this.#held.get(proof) === cuts) this.#held.delete(proof);
      },
    };
  }

  /** After a revocation was committed: from here on it holds in this process, without waiting for the announcement. */
  async refresh(): Promise<void> {
    this.#forgetThenCheck();
    await this.#checking;
  }

  /** What is not found is not remembered: a key is good as soon as it exists. */
  async #remember<T>(name: string, find: () => Promise<T | undefined>): Promise<T | undefined> {
    const known = this.#remembered.get(name);
    if (known !== undefined && performance.now() - known.atMs < CACHED_MS) return known.found as Promise<T>; // by its name
    if (this.#remembered.size >= MAX_CACHED) this.#remembered.clear();
    const remembered = { found: find(), atMs: performance.now() };
    this.#remembered.set(name, remembered);
    const forget = () => {
      if (this.#remembered.get(name) === remembered) this.#remembered.delete(name);
    };
    try {
      const found = await remembered.found;
      if (found === undefined) forget();
      return found;
    } catch (error) {
      forget();
      throw error;
    }
  }

  #forgetThenCheck(): void {
    this.#remembered.clear();
    this.#checking = this.#checking.then(() => this.#check());
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await sleep(CACHED_MS, signal).catch(() => {}); // stopped
      this.#checking = this.#checking.then(() => this.#check());
      await this.#checking;
    }
  }

  /** One query, however much is open. */
  async #check(): Promise<void> {
    if (this.#held.size === 0 || this.#stop.signal.aborted) return;
    const proofs = [...this.#held.keys()];
    try {
      const good = await goodProofs(this.#db.query, proofs);
      for (const proof of proofs) if (!good.has(proof)) this.#cut(proof);
    } catch (error) {
      this.#log.warn({ err: error }, 'what is open could not be checked against its credentials');
    }
  }

  #cut(proof: string): void {
    const cuts = this.#held.get(proof) ?? [];
    this.#held.delete(proof);
    for (const cut of cuts) cut();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error('the orchestrator stops'));
    await this.#subscription?.[Symbol.asyncDispose]();
    await this.#watching;
    await this.#checking;
  }
}
