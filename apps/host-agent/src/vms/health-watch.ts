/**
 * The verdicts of a VM's healthcheck, asked for while it runs and only when it has one. A guest keeps its healthcheck in its memory, so one that may have
 * brought it along (adopted, resumed, restored, forked) is asked once.
 */
import type { Health, Healthcheck } from '@fuse/contract';
import type { GuestHealthcheck } from '@fuse/host-protocol';
import { type Logger, sleep } from '@fuse/runtime';
import type { Guest } from '../guest/guest.ts';

const POLL_MS = 3_000;
/** `since` is told as how long ago: it is the same moment when it differs by less. */
const SAME_MOMENT_MS = 2_000;
const MAX_FAILURES = 1_000_000;

export class HealthWatch {
  readonly #log: Logger;
  #guest: Guest | undefined;
  #polling: AbortController | undefined;
  #isNew: boolean;
  #health: Health | undefined;

  /** `isNew`: its first guest has none until it is given one. */
  constructor({ isNew, log }: { isNew: boolean; log: Logger }) {
    this.#isNew = isNew;
    this.#log = log;
  }

  get health(): Health | undefined {
    return this.#health;
  }

  /** The guest that runs now; undefined while none does. */
  follow(guest: Guest | undefined): void {
    if (guest === this.#guest) return;
    this.#guest = guest;
    this.#polling?.abort();
    this.#polling = undefined;
    if (guest === undefined) return;
    if (!this.#isNew) this.#poll(guest);
    this.#isNew = false;
  }

  /** It begins anew with `starting`. */
  async put(guest: Guest, healthcheck: Healthcheck): Promise<void> {
    await guest.putHealthcheck(healthcheck);
    this.#health = undefined;
    const verdict = await guest.healthcheck();
    if (verdict !== undefined) this.#take(verdict);
    if (guest === this.#guest) this.#poll(guest);
  }

  #poll(guest: Guest): void {
    this.#polling?.abort();
    const polling = new AbortController();
    this.#polling = polling;
    void this.#ask(guest, polling.signal);
  }

  /** Until the guest says that it has none. What it does not answer is asked again: whether it lives is not judged here. */
  async #ask(guest: Guest, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const verdict = await guest.healthcheck(signal);
        if (signal.aborted) return;
        if (verdict === undefined) {
          this.#health = undefined;
          return;
        }
        this.#take(verdict);
      } catch (error) {
        if (!signal.aborted) this.#log.debug({ err: error }, 'healthcheck not read');
      }
      await sleep(POLL_MS, signal).catch(() => {});
    }
  }

  #take({ state, since_ms_ago, failures, message }: GuestHealthcheck): void {
    const sinceMs = Date.now() - Math.min(since_ms_ago, Date.now());
    const last = this.#health;
    const isSame = last?.state === state && Math.abs(Date.parse(last.since) - sinceMs) < SAME_MOMENT_MS;
    this.#health = {
      state,
      since: isSame ? last.since : new Date(sinceMs).toISOString(),
      ...(failures === undefined ? {} : { failures: Math.min(Math.max(0, failures), MAX_FAILURES) }),
      ...(message === undefined ? {} : { message }),
    };
  }
}
