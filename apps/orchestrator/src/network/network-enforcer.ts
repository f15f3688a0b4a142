/** Enforces networks one after the other for each environment, so that what this process tells a host never overtakes itself. */
import { AppError } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import { enforceNetwork, NO_NETWORK_CARD } from './enforce-network.ts';
import { environmentsWithCards, takeBackNetwork } from './network-store.ts';

/** Hosts are asked side by side. */
const MAX_AT_ONCE = 16;

export class NetworkEnforcer implements AsyncDisposable {
  readonly #context: EnvironmentContext;
  readonly #last = new Map<string, Promise<void>>();
  readonly #stop = new AbortController();

  constructor(context: EnvironmentContext) {
    this.#context = context;
  }

  /** See `enforceNetwork`. What was committed before it is called is enforced when it resolves. */
  enforce(uid: string): Promise<void> {
    const former = this.#last.get(uid) ?? Promise.resolve();
    const { signal } = this.#stop;
    const promise = former
      .catch(() => {}) // told to whoever began it
      .then(() => enforceNetwork(this.#context, uid, signal))
      .finally(() => {
        if (this.#last.get(uid) === promise) this.#last.delete(uid);
      });
    this.#last.set(uid, promise);
    return promise;
  }

  /** As `enforce`, after a change of the row. Where its host finds that it has no card, the row is as before. */
  async enforceChange(before: EnvironmentRow, after: EnvironmentRow): Promise<void> {
    try {
      await this.enforce(after.uid);
    } catch (error) {
      if (error instanceof AppError && error.details?.reason === NO_NETWORK_CARD)
        await takeBackNetwork(this.#context.db.query, after, before.network);
      throw error;
    }
  }

  /** Of all of a tenant, whose maximum is another one now. What cannot be enforced now is when its host is compared. */
  async enforceTenant(tenantId: string): Promise<void> {
    const queue = (await environmentsWithCards(this.#context.db.query, tenantId)).values();
    const work = async () => {
      for (const { uid, id } of queue)
        await this.enforce(uid).catch((error: unknown) =>
          this.#context.log.warn({ err: error, environment: id }, 'maximum not enforced yet, the reconciler does'),
        );
    };
    await Promise.all(Array.from({ length: MAX_AT_ONCE }, work));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new AppError('unavailable', 'the orchestrator stops', { retryAfterSeconds: 1 }));
    await Promise.allSettled(this.#last.values());
  }
}
