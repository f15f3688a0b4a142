/**
 * Drives runs, a bounded number at a time, each by itself. Whoever admits a run drives it at once; what a process that died left behind
 * is taken over when its lease is out.
 *
 * Loops: leases are renewed (and cancellations noticed), abandoned runs are taken over. NOTIFY only makes them earlier. Queued runs come from queue/.
 */
import { newId, sleep } from '@fuse/runtime';
import { channels } from '../db/db.ts';
import type { EnvironmentRow, RunRow } from '../db/schema.ts';
import { ActiveRun, type HeldRun } from './driving/active-run.ts';
import { type Drive, type DriveContext, environmentUidOf } from './driving/drive.ts';
import { driveRun } from './driving/drive-run.ts';
import { claimAbandonedRuns, endAllLeases, giveUpLeases, renewLeases } from './run-leases.ts';
import type { Wakeup } from './wakeup.ts';

export interface RunWorkerOptions extends DriveContext {
  maxRuns: number;
  leaseMs: number;
  /** Of whoever serves the queue. */
  queue: Wakeup;
}

const STOP_MS = 10_000;

export class RunWorker implements AsyncDisposable {
  readonly owner = newId('worker');
  readonly leaseMs: number;
  readonly #options: RunWorkerOptions;
  readonly #active = new Map<string, ActiveRun>();
  /** Slots of runs that are being admitted. */
  #reserved = 0;
  readonly #destroying = new Set<Promise<void>>();
  readonly #stopped = new AbortController();
  readonly #subscriptions: AsyncDisposable[] = [];
  #loops: Promise<unknown> = Promise.resolve();

  constructor(options: RunWorkerOptions) {
    this.#options = options;
    this.leaseMs = options.leaseMs;
  }

  async start(): Promise<void> {
    const { db } = this.#options;
    if (db.kind === 'pglite') await endAllLeases(db.query);
    this.#subscriptions.push(await db.listen(channels.runs, (payload) => this.#onNews(payload)));
    this.#loops = Promise.all([
      this.#loop('renew leases', () => this.#renew(), this.leaseMs / 3),
      this.#loop('take over runs', () => this.#takeOver(), this.leaseMs / 3),
    ]);
  }

  /** For a run that is about to be leased to this worker: give it to `drive`, or give it back. */
  reserveSlot(): boolean {
    if (this.#stopped.signal.aborted || this.#freeSlots <= 0) return false;
    this.#reserved += 1;
    return true;
  }

  /** Beside those that are reserved. */
  get hasFreeSlot(): boolean {
    return this.#freeSlots > 0;
  }

  releaseSlot(): void {
    this.#reserved -= 1;
    this.wakeQueue();
  }

  /** As `releaseSlot`, by whoever serves the queue: waking it from there would make it look again at once, for ever. */
  giveSlotBack(): void {
    this.#reserved -= 1;
  }

  get #freeSlots(): number {
    return this.#options.maxRuns - this.#active.size - this.#reserved;
  }

  /** Somebody may have been queued, or there may be room. */
  wakeQueue(): void {
    this.#options.queue.wake();
  }

  /** `run` was just leased to this worker, and has a slot. */
  drive(run: RunRow, heldUntil: number, environment: EnvironmentRow): void {
    this.#reserved -= 1;
    this.#begin({ run, owner: this.owner, heldUntil, environment });
  }

  #begin(held: HeldRun): void {
    const { run } = held;
    const active = new ActiveRun(held, (drive) => this.#drive(run, drive));
    this.#active.set(run.id, active);
    if (this.#stopped.signal.aborted) active.stop();
  }

  async #drive(run: RunRow, drive: Drive): Promise<void> {
    await Promise.resolve(); // let `drive` put it into the map first
    try {
      await this.#options.checkpoint('admitted', run.id);
      const ended = await driveRun(this.#options, drive, run);
      if (ended !== undefined && ended.environment_uid !== null) this.#destroy(environmentUidOf(ended), ended.id);
    } catch (error) {
      this.#options.log.error({ err: error, run_id: run.id }, 'driving a run failed for good');
    } finally {
      // One that lost the run may end when this process has taken it over again.
      if (this.#active.get(run.id)?.drive === drive) this.#active.delete(run.id);
      this.wakeQueue();
    }
  }

  /** Committed as `destroying` already: what fails here is finished by the reconciler. */
  #destroy(environmentUid: string, runId: string): void {
    const { environments, log } = this.#options;
    const destroying = environments
      .destroy(environmentUid)
      .then(
        () => {},
        (error: unknown) => log.warn({ err: error, run_id: runId }, 'the VM of an ended run is not gone yet'),
      )
      .finally(() => this.#destroying.delete(destroying));
    this.#destroying.add(destroying);
  }

  async #renew(): Promise<void> {
    const until = performance.now() + this.leaseMs;
    const held = [...this.#active];
    try {
      const renewed = await renewLeases(
        this.#options.db.query,
        this.owner,
        held.map(([runId]) => runId),
        this.leaseMs,
      );
      for (const [runId, active] of held) {
        const row = renewed.get(runId);
        if (row === undefined) active.stop();
        else active.renewed(until);
        if (row?.cancelRequested) active.cancel();
      }
    } finally {
      for (const active of this.#active.values()) if (active.heldUntil <= performance.now()) active.stop();
    }
  }

  async #takeOver(): Promise<void> {
    const limit = this.#freeSlots;
    if (limit <= 0) return;
    const heldUntil = performance.now() + this.leaseMs;
    const { db, log } = this.#options;
    const claimed = await claimAbandonedRuns(db.query, { owner: this.owner, leaseMs: this.leaseMs, limit });
    for (const run of claimed) {
      log.info({ run_id: run.id, state: run.state }, 'run taken over');
      this.#begin({ run, owner: this.owner, heldUntil });
    }
  }

  async #loop(what: string, work: () => Promise<void>, everyMs: number): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      try {
        await work();
      } catch (error) {
        this.#options.log.warn({ err: error, what }, 'loop failed');
      }
      await sleep(everyMs, signal).catch(() => {});
    }
  }

  #onNews(payload: string | undefined): void {
    const cancelled = payload?.startsWith('cancel:') ? payload.slice('cancel:'.length) : undefined;
    if (cancelled === undefined) this.wakeQueue();
    else this.#active.get(cancelled)?.cancel();
  }

  /** Commands go on; another process takes their runs over. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped.abort();
    for (const subscription of this.#subscriptions) await subscription[Symbol.asyncDispose]();
    await this.#loops;
    const active = [...this.#active.values()];
    for (const each of active) each.stop();
    const late = new AbortController();
    await Promise.race([
      Promise.all([...active.map((each) => each.done), ...this.#destroying]),
      sleep(STOP_MS, late.signal).catch(() => {}),
    ]);
    late.abort();
    await giveUpLeases(this.#options.db.query, this.owner).catch((error: unknown) =>
      this.#options.log.warn({ err: error }, 'leases are left to run out'),
    );
  }
}
