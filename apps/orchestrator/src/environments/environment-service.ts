/**
 * What others (runs/, reconciling/, routes) may ask of environments. A run's environment goes through exactly the same
 * admission and life as any other.
 */
import { AppError, type ExecRequest, type ExecResult, invalidField } from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { Queryable, Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { HostClient } from '../hosts/host-client.ts';
import type { Placement, PlacementSpec } from '../scheduling/placement.ts';
import { type Admission, type Admitted, admit, place } from './admission.ts';
import { type Created, type Creation, createEnvironment } from './create-environment.ts';
import { finishDestroying, markDestroying, markDestroyingIn } from './destroy-environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { type EnvironmentFilter, environmentById, environmentByUid, listEnvironments } from './environment-store.ts';
import { execInEnvironment, toStartExec } from './exec-in-environment.ts';
import { giveUpStart, ProcessStops, type StartOptions, startEnvironment } from './start-environment.ts';

export type { Admission, Admitted } from './admission.ts';

interface Underway<T> {
  promise: Promise<T>;
  abort: AbortController;
}

const STOP_MS = 5_000;

export class EnvironmentService implements AsyncDisposable {
  readonly #context: EnvironmentContext;
  readonly #starts = new Map<string, Underway<EnvironmentRow>>();
  readonly #destroys = new Map<string, Promise<{ destroyMs: number | undefined }>>();

  #stopping = false;

  constructor(context: EnvironmentContext) {
    this.#context = context;
  }

  /** 400 naming `field` and those that exist when no host has it; 503 when there is no host to ask. */
  async requireImage(image: string, field = 'image'): Promise<void> {
    const { hosts } = this.#context;
    const names = async () => (await hosts.images()).map(({ name }) => name);
    if ((await names()).includes(image)) return;
    await hosts.heartbeats(); // one may have been added since a host was last asked
    const known = await names();
    if (known.includes(image)) return;
    if (known.length === 0)
      throw new AppError('unavailable', 'no hosts registered', {
        details: { reason: 'no_room' },
        retryAfterSeconds: 5,
      });
    throw invalidField(
      field,
      `there is no image "${image}", only ${known.join(', ')}`,
      `Images that exist: ${known.join(', ')}.`,
    );
  }

  /** Whether the shape fits now, later or never; reserves nothing. */
  wouldPlace(db: Queryable, spec: PlacementSpec): Promise<Placement> {
    return place(this.#context, db, spec);
  }

  /**
   * Schedules, reserves and inserts the row (`provisioning`, leased to this process), with its event, in the caller's transaction.
   * 409 `conflict` when the task has a live environment.
   */
  admit(tx: Tx, admission: Admission): Promise<Admitted> {
    return admit(this.#context, tx, admission);
  }

  /**
   * Takes a `provisioning` environment to `running` on its host; may be called again by another process (the VM is made once).
   * Calls at once share one: the first one's options count. Resolves with the row when it is running already.
   * On failure the environment is `failed` with the reason, its VM deleted, its reservation given back, and the error thrown.
   */
  start(uid: string, options: StartOptions = {}): Promise<EnvironmentRow> {
    const underway = this.#starts.get(uid);
    if (underway !== undefined) return underway.promise;
    if (this.#stopping) return Promise.reject(new ProcessStops());
    const abort = new AbortController();
    const { signal } = options;
    const either = signal === undefined ? abort.signal : AbortSignal.any([abort.signal, signal]);
    const promise = startEnvironment(this.#context, uid, { ...options, signal: either }).finally(() =>
      this.#starts.delete(uid),
    );
    this.#starts.set(uid, { promise, abort });
    return promise;
  }

  /**
   * Legal in every state; calls at once share one. Resolves when every trace on the host is gone and the row is `destroyed`
   * (or was gone already), with the host's own time. When the host cannot be reached: `unavailable`, and the reconciler goes on with it.
   */
  destroy(uid: string, reason?: string): Promise<{ destroyMs: number | undefined }> {
    const underway = this.#destroys.get(uid);
    if (underway !== undefined) return underway;
    const promise = this.#destroy(uid, reason).finally(() => this.#destroys.delete(uid));
    this.#destroys.set(uid, promise);
    return promise;
  }

  /**
   * The first half of `destroy`, in the caller's transaction: `destroying` is committed with whatever else the caller writes, and from
   * then on the environment goes, whoever finishes it. Nothing happens when it is going or gone already.
   */
  beginDestroy(tx: Tx, uid: string, reason?: string): Promise<void> {
    return markDestroyingIn(tx, uid, reason);
  }

  async #destroy(uid: string, reason: string | undefined): Promise<{ destroyMs: number | undefined }> {
    const row = await markDestroying(this.#context, uid, reason);
    if (row === undefined) return { destroyMs: undefined };
    const starting = this.#starts.get(uid);
    starting?.abort.abort(new AppError('conflict', `environment ${row.id} was destroyed while it started`));
    await starting?.promise.catch(() => {}); // its caller hears of it
    return { destroyMs: await finishDestroying(this.#context, row) };
  }

  /** For the reconciler: `row` is provisioning and nobody drives it any more. */
  async giveUpStart(row: EnvironmentRow, reason: string): Promise<void> {
    if (!this.#starts.has(row.uid)) await giveUpStart(this.#context, row, reason);
  }

  get(db: Queryable, uid: string): Promise<EnvironmentRow | undefined> {
    return environmentByUid(db, uid);
  }

  /** The client of the host that it is on. */
  hostOf(environment: EnvironmentRow): Promise<HostClient> {
    return this.#context.hosts.client(environment.host_id);
  }

  /** 404 when it does not exist, or is another tenant's. */
  async find(tenantId: string, id: string): Promise<EnvironmentRow> {
    const row = await environmentById(this.#context.db.query, tenantId, id);
    if (row === undefined) throw new AppError('not_found', `vm ${id} not found`);
    return row;
  }

  /** Live ones by id, one more than `limit` when there are more. */
  list(filter: EnvironmentFilter): Promise<EnvironmentRow[]> {
    return listEnvironments(this.#context.db.query, filter);
  }

  /** `POST /v1/environments`. */
  create(creation: Creation): Promise<Created> {
    return createEnvironment(this.#context, this, creation);
  }

  /** `?action=exec`. Aborting `signal` kills the command. */
  async exec(tenantId: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const command = toStartExec(request); // what is wrong with it is said first
    const row = await this.find(tenantId, id);
    if (row.state !== 'running')
      throw new AppError('conflict', `vm ${id} is ${row.state}, not running`, { details: { state: row.state } });
    return execInEnvironment(this.#context, row, { command, encoding: request.encoding ?? 'utf8' }, signal);
  }

  /**
   * Starts under way are left to whoever comes next, those that are being given up and destructions get a moment to finish. All of
   * them are durable: what is cut here goes on elsewhere.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping = true;
    const starts = [...this.#starts.values()];
    for (const { abort } of starts) abort.abort(new ProcessStops());
    const late = new AbortController();
    await Promise.race([
      Promise.allSettled([...starts.map(({ promise }) => promise), ...this.#destroys.values()]),
      sleep(STOP_MS, late.signal).catch(() => {}),
    ]);
    late.abort();
  }
}
