/** What routes, forks, checkpoints and the reconciler may ask of snapshots. Whatever is asked for at once shares one piece of work. */
import { AppError, type ResolvedSnapshot } from '@fuse/contract';
import type { Tx } from '../db/db.ts';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';
import { type CreatedSnapshot, createSnapshot, type SnapshotCreation } from './create-snapshot.ts';
import { type Freed, finishDeleting, markDeleting, markExpired } from './delete-snapshot.ts';
import { beginRestore, finishRestore, type RestoreRequest, snapshotNotFound } from './restore-snapshot.ts';
import { toSnapshot } from './snapshot.ts';
import type { SnapshotContext } from './snapshot-context.ts';
import { type Layer, type ListedSnapshot, listSnapshots, resolveLayer, type SnapshotFilter } from './snapshot-reads.ts';
import { snapshotById } from './snapshot-store.ts';
import {
  beginSnapshot,
  finishTaking,
  leasedTaking,
  type NewSnapshot,
  NotOurs,
  newSnapshotId,
  takeOnHost,
} from './take-snapshot.ts';

export interface Taking {
  /** VMs may start from it on its host. */
  usable: Promise<void>;
  /** Its row is `ready`. */
  ready: Promise<SnapshotRow>;
}

/** Part of the transaction that makes it `ready`. */
type OnReady = (tx: Tx, ready: SnapshotRow) => Promise<void>;

const STOP_MS = 5_000;

export class SnapshotService implements AsyncDisposable {
  readonly #context: SnapshotContext;
  readonly #stop = new AbortController();
  readonly #takings = new Map<string, Taking>();
  readonly #deletions = new Map<string, Promise<Freed>>();
  readonly #restores = new Map<string, Promise<void>>();

  constructor(context: Omit<SnapshotContext, 'stopping'>) {
    this.#context = { ...context, stopping: this.#stop.signal };
  }

  /** `POST /v1/environments/{id}/snapshots`. */
  create(creation: SnapshotCreation): Promise<CreatedSnapshot> {
    return createSnapshot(this.#context, this, creation);
  }

  /** The row alone, in the caller's transaction; `take` goes on with it once that is committed. */
  begin(tx: Tx, snapshot: Omit<NewSnapshot, 'id'>): Promise<SnapshotRow> {
    return beginSnapshot(this.#context, tx, { ...snapshot, id: newSnapshotId() });
  }

  /** Goes on though nobody waits; a rejection that nobody sees is logged. */
  take(row: SnapshotRow, onReady?: OnReady): Taking {
    const underway = this.#takings.get(row.id);
    if (underway !== undefined) return underway;
    let isUsable: () => void = () => {};
    let isNot: (reason: unknown) => void = () => {};
    const usable = new Promise<void>((resolve, reject) => {
      isUsable = resolve;
      isNot = reject;
    });
    const ready = leasedTaking(this.#context, row, async () => {
      await takeOnHost(this.#context, row);
      isUsable();
      return this.#finishTaking(row, onReady);
    }).finally(() => this.#takings.delete(row.id));
    ready.catch((error: unknown) => {
      isNot(error);
      this.#context.log.warn({ err: error, snapshot_id: row.id, environment: row.vm_id }, 'snapshot not taken');
    });
    usable.catch(() => {}); // `ready` says it too
    const taking = { usable, ready };
    this.#takings.set(row.id, taking);
    return taking;
  }

  async #finishTaking(row: SnapshotRow, onReady?: OnReady): Promise<SnapshotRow> {
    const ready = await finishTaking(this.#context, row, onReady);
    const { id: snapshot_id, vm_id: environment, host_id, pause_ms, size_bytes, stored_bytes } = ready;
    this.#context.log.info({ snapshot_id, environment, host_id, pause_ms, size_bytes, stored_bytes }, 'snapshot ready');
    return ready;
  }

  /** Of this process. */
  taking(id: string): Taking | undefined {
    return this.#takings.get(id);
  }

  async get(tenantId: string, id: string): Promise<SnapshotRow> {
    const row = await snapshotById(this.#context.db.query, id);
    if (row === undefined || row.tenant_id !== tenantId) throw snapshotNotFound(id);
    return row;
  }

  /** Newest first, one more than `limit` when there are more. */
  list(filter: SnapshotFilter): Promise<ListedSnapshot[]> {
    return listSnapshots(this.#context.db.query, filter);
  }

  async resolve(layer: Layer): Promise<ResolvedSnapshot> {
    const row = await resolveLayer(this.#context.db.query, layer);
    return row === undefined ? { found: false } : { found: true, snapshot: toSnapshot(row) };
  }

  /**
   * Legal in every state. Resolves when every byte that nobody else needs is gone. When its host cannot be reached: `unavailable`, and the
   * reconciler goes on with it. Without a tenant: anybody's.
   */
  async delete(id: string, options: { force: boolean; tenantId?: string }): Promise<Freed> {
    const row = await markDeleting(this.#context, id, options);
    if (row === undefined) throw snapshotNotFound(id);
    const underway = this.#deletions.get(id);
    if (underway !== undefined) return underway;
    const promise = finishDeleting(this.#context, row).finally(() => this.#deletions.delete(id));
    this.#deletions.set(id, promise);
    const freed = await promise;
    this.#context.log.info({ snapshot_id: id, ...freed }, 'snapshot deleted');
    return freed;
  }

  /** For the reconciler: gone when it is over its time and nothing starts from it at this moment. */
  async collect(id: string): Promise<void> {
    if (await markExpired(this.#context, id)) await this.delete(id, { force: true });
  }

  /** `?action=restore`: the environment runs as of the snapshot when it resolves. */
  async restore(request: RestoreRequest): Promise<void> {
    const row = await beginRestore(this.#context, request);
    await this.#finishRestore(row).catch((error: unknown) => {
      throw error instanceof NotOurs ? goesOnElsewhere(row, error) : error;
    });
    this.#context.log.info({ snapshot_id: request.id, environment: row.id }, 'environment restored in place');
  }

  /** For the reconciler: `row` is `resuming` with a restore, and nobody drives it any more. */
  async goOnRestoring(row: EnvironmentRow): Promise<void> {
    await this.#finishRestore(row);
  }

  #finishRestore(row: EnvironmentRow): Promise<void> {
    const underway = this.#restores.get(row.uid);
    if (underway !== undefined) return underway;
    const promise = finishRestore(this.#context, row).finally(() => this.#restores.delete(row.uid));
    this.#restores.set(row.uid, promise);
    return promise;
  }

  /** For the reconciler: `row` is `creating` and nobody drives it any more. What its host has is finished, else it is an error. */
  async goOnTaking(row: SnapshotRow): Promise<void> {
    if (this.#takings.has(row.id)) return;
    await leasedTaking(this.#context, row, () => this.#finishTaking(row));
  }

  /** What is under way stops where it is and goes on elsewhere: all of it is durable. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new AppError('unavailable', 'the orchestrator stops', { retryAfterSeconds: 1 }));
    let timer: NodeJS.Timeout | undefined;
    const underway = [
      ...[...this.#takings.values()].map(({ ready }) => ready),
      ...this.#deletions.values(),
      ...this.#restores.values(),
    ];
    await Promise.race([
      Promise.allSettled(underway),
      new Promise<void>((resolve) => {
        timer = setTimeout(resolve, STOP_MS);
      }),
    ]);
    clearTimeout(timer);
  }
}

const goesOnElsewhere = (row: EnvironmentRow, cause: unknown): AppError =>
  new AppError('unavailable', `the restore of vm ${row.id} goes on elsewhere`, {
    cause,
    hint: 'Look at the environment: it runs once it is restored.',
    retryAfterSeconds: 1,
  });
