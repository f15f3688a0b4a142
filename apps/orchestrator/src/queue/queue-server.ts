/**
 * Gives room to those that wait for it, one after the other, and gives up those whose time is over. Every process has one; one at a time is at it. NOTIFY only
 * makes it earlier: what another process's news told of late is noticed by the next look.
 */
import { channels } from '../db/db.ts';
import { endWaitersLeases, failOverdue } from '../environments/queueing/take-place.ts';
import { nextDeadlineInMs } from '../environments/queueing/waiting.ts';
import { failOverdueQueued } from '../runs/queue-admission.ts';
import type { RunWorker } from '../runs/run-worker.ts';
import type { Wakeup } from '../runs/wakeup.ts';
import { type ServeContext, type Served, serveNext } from './serve-next.ts';

export interface QueueServerOptions extends ServeContext {
  worker: RunWorker;
  /** Woken by whoever adds to the queue, or makes room, in this process. */
  wakeup: Wakeup;
  /** How long ended runs are kept. */
  retentionMs: number;
}

const IDLE_LOOK_MS = 5_000;
const QUEUE_LOOK_MS = 1_000;
const BUSY_LOOK_MS = 50;

export class QueueServer implements AsyncDisposable {
  readonly #options: QueueServerOptions;
  readonly #stop = new AbortController();
  #subscription: AsyncDisposable | undefined;
  #loop: Promise<void> = Promise.resolve();

  constructor(options: QueueServerOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { context, wakeup } = this.#options;
    // Alone with this database: whoever waited with them is gone.
    if (context.db.kind === 'pglite') await endWaitersLeases(context.db.query);
    this.#subscription = await context.db.listen(channels.capacity, () => wakeup.wake());
    this.#loop = this.#run();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let waitMs = QUEUE_LOOK_MS;
      try {
        waitMs = await this.#serve();
      } catch (error) {
        this.#options.context.log.warn({ err: error }, 'serving the queue failed');
      }
      await this.#options.wakeup.next(waitMs, signal);
    }
  }

  /** When to look again, at the latest. */
  async #serve(): Promise<number> {
    const { context, retentionMs } = this.#options;
    const deadlineMs = await nextDeadlineInMs(context.db.query);
    if (deadlineMs === undefined) return IDLE_LOOK_MS;
    if (deadlineMs <= 0) {
      await failOverdue(context);
      await failOverdueQueued({ db: context.db, retentionMs });
    }
    let served = await this.#serveOne();
    while (served !== undefined && served !== 'busy' && !this.#stop.signal.aborted) served = await this.#serveOne();
    return served === 'busy' ? BUSY_LOOK_MS : Math.min(QUEUE_LOOK_MS, Math.max(1, deadlineMs));
  }

  async #serveOne(): Promise<Served | 'busy' | undefined> {
    const { worker, environments } = this.#options;
    const { owner, leaseMs } = worker;
    const hasSlot = worker.reserveSlot();
    const heldUntil = performance.now() + leaseMs;
    let isDriven = false;
    try {
      const served = await serveNext(this.#options, hasSlot ? { owner, leaseMs } : undefined);
      if (served === undefined || served === 'busy') return served;
      this.#options.context.measurePhase?.('queue', waitedSeconds(served));
      if (served.kind === 'run') {
        isDriven = true;
        worker.drive(served.run, heldUntil, served.environment);
      } else if (!served.isAwaited) environments.startUnwaited(served.environment.uid);
      return served;
    } finally {
      if (hasSlot && !isDriven) worker.giveSlotBack();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#subscription?.[Symbol.asyncDispose]();
    await this.#loop;
  }
}

/** From when it was asked for until it got its room: both are the database's time. */
function waitedSeconds(served: Served): number {
  const { environment } = served;
  const askedAt = served.kind === 'run' ? served.run.created_at : environment.created_at;
  return Math.max(0, environment.updated_at.getTime() - askedAt.getTime()) / 1_000;
}
