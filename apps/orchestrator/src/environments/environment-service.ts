/**
 * What others (runs/, reconciling/, routes) may ask of environments. A run's environment goes through exactly the same
 * admission and life as any other.
 */
import {
  AppError,
  type Environment,
  invalidField,
  type NetworkPolicy,
  type PlacementReport,
  type UpdateEnvironment,
} from '@fuse/contract';
import { sleep } from '@fuse/runtime';
import type { Queryable, Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { HostClient } from '../hosts/host-client.ts';
import { chooseNetwork, type NetworkWish } from '../network/choose-network.ts';
import { NetworkEnforcer } from '../network/network-enforcer.ts';
import type { Placement, PlacementSpec } from '../scheduling/placement.ts';
import type { SchedulableHost } from '../scheduling/schedule.ts';
import { type Admission, type Admitted, admit, place } from './admission.ts';
import { type Created, type Creation, createEnvironment } from './create-environment.ts';
import { discardVm, finishDestroying, markDestroying, markDestroyingIn } from './destroy-environment.ts';
import { drainEnvironment } from './drain-environment.ts';
import { type MoveContext, settle } from './drive-move.ts';
import { toEnvironment } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import {
  type EnvironmentFilter,
  environmentById,
  environmentByUid,
  lastGone,
  listEnvironments,
} from './environment-store.ts';
import { rotateToken } from './environment-token.ts';
import { markDue } from './expire-environment.ts';
import { watchHealth } from './health.ts';
import { type PauseOptions, pauseEnvironment } from './pause-environment.ts';
import { pinFirst } from './pin-first.ts';
import { placementOf } from './placement-of.ts';
import { putRight } from './put-right.ts';
import { ready } from './ready.ts';
import { RecentEnvironments } from './recent-environments.ts';
import { resumeEnvironment } from './resume-environment.ts';
import {
  giveUpStart,
  INTERRUPTED,
  isGoneOnWith,
  ProcessStops,
  type StartOptions,
  startEnvironment,
} from './start-environment.ts';
import { type StartTogetherOptions, startTogether } from './start-together.ts';
import { updateEnvironment } from './update-environment.ts';

export type { Admission, Admitted } from './admission.ts';

interface Underway<T> {
  promise: Promise<T>;
  abort: AbortController;
}

const STOP_MS = 5_000;
/** What is shared by whoever asks for the same. */
const MOVE_KINDS = ['pause', 'idle', 'resume', 'settle', 'correction', 'drain'] as const;
type MoveKind = (typeof MOVE_KINDS)[number];

export class EnvironmentService implements AsyncDisposable {
  readonly #context: MoveContext;
  readonly #recent: RecentEnvironments;
  readonly #networks: NetworkEnforcer;
  readonly #starts = new Map<string, Underway<EnvironmentRow>>();
  /** Pausing, resuming, and waiting for either. */
  readonly #moves = new Map<string, Underway<unknown>>();
  /** Of healthchecks that have not passed yet. */
  readonly #watches = new Map<string, Underway<void>>();
  readonly #destroys = new Map<string, Promise<{ destroyMs: number | undefined }>>();

  #stopping = false;

  constructor(context: EnvironmentContext) {
    this.#context = { ...context, driving: new Map() };
    this.#networks = new NetworkEnforcer(context);
    this.#recent = new RecentEnvironments(context.db, context.hub);
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
   * 409 `conflict` when the task has a live environment. `fleet`: of whoever serves those that wait.
   */
  admit(tx: Tx, admission: Admission, fleet?: readonly SchedulableHost[]): Promise<Admitted> {
    return admit(this.#context, tx, admission, fleet);
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
    promise.then((row) => this.#watch(row)).catch(() => {}); // its caller hears of it
    return promise;
  }

  /** As `start`; the row tells what becomes of it. Also of one whose driver died. */
  startUnwaited(uid: string): void {
    this.start(uid).catch((error: unknown) => {
      if (error instanceof ProcessStops) return;
      // Not the error itself, which has its script's output in it.
      const reason = error instanceof Error ? error.message : String(error);
      this.#context.log.info({ uid, reason }, 'start of an environment failed');
    });
  }

  #watch(row: EnvironmentRow): void {
    if (row.healthcheck === null || this.#watches.has(row.uid) || this.#stopping) return;
    const abort = new AbortController();
    const promise = watchHealth(this.#context, row, abort.signal)
      .catch((error: unknown) => {
        if (!abort.signal.aborted)
          this.#context.log.debug({ err: error, environment: row.id }, 'health not watched, the reconciler does');
      })
      .finally(() => this.#watches.delete(row.uid));
    this.#watches.set(row.uid, { promise, abort });
  }

  /** As `start`, of several that were just admitted by this process: all of them run when it resolves, or none is left. */
  startTogether(rows: readonly EnvironmentRow[], options: StartTogetherOptions): Promise<EnvironmentRow[]> {
    if (this.#stopping) return Promise.reject(new ProcessStops());
    const abort = new AbortController();
    const signal = AbortSignal.any([abort.signal, options.signal]);
    const together = startTogether(this.#context, rows, { ...options, signal }).finally(() => {
      for (const { uid } of rows) this.#starts.delete(uid);
    });
    const watchAll = (running: EnvironmentRow[]) => {
      for (const row of running) this.#watch(row);
    };
    together.then(watchAll).catch(() => {}); // the caller hears of it
    for (const [position, row] of rows.entries()) {
      const promise = together.then((running) => running[position] ?? row);
      promise.catch(() => {}); // the caller of `startTogether` hears of it
      this.#starts.set(row.uid, { promise, abort });
    }
    return together;
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

  /** For the reconciler: as `destroy`, if it is (still) due to end by itself. */
  async endIfDue(uid: string): Promise<boolean> {
    const isDue = await markDue(this.#context, uid);
    if (isDue) await this.destroy(uid);
    return isDue;
  }

  /** For the reconciler: `row` is gone, and its host still has its VM. */
  discardVm(row: EnvironmentRow): Promise<void> {
    return discardVm(this.#context, row);
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
    this.#watches.get(uid)?.abort.abort();
    for (const kind of MOVE_KINDS)
      this.#moves
        .get(`${kind}:${uid}`)
        ?.abort.abort(
          new AppError('conflict', `environment ${row.id} was destroyed`, { details: { state: row.state } }),
        );
    return { destroyMs: await finishDestroying(this.#context, row) };
  }

  /** For the reconciler: `row` is provisioning and nobody drives it any more. One that nobody waited for goes on, any other is given up. */
  async endAbandonedStart(row: EnvironmentRow): Promise<void> {
    if (isGoneOnWith(row)) this.startUnwaited(row.uid);
    else if (!this.#starts.has(row.uid)) await giveUpStart(this.#context, row, row.error ?? INTERRUPTED);
  }

  /** Its public form. */
  view(row: EnvironmentRow): Environment {
    return toEnvironment(row, this.#context.publicAddress());
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
    return (await environmentById(this.#context.db.query, tenantId, id)) ?? this.#missing(tenantId, id);
  }

  /** The same as it was a moment ago, perhaps: for what its host refuses when it is not so any more. */
  async findRecent(tenantId: string, id: string): Promise<EnvironmentRow> {
    return (await this.#recent.find(tenantId, id)) ?? this.#missing(tenantId, id);
  }

  /** The live one, or the last that is gone. 404 when there was none. */
  async findLast(tenantId: string, id: string): Promise<EnvironmentRow> {
    const { query } = this.#context.db;
    const row = (await environmentById(query, tenantId, id)) ?? (await lastGone(query, tenantId, id));
    return row ?? this.#missing(tenantId, id);
  }

  /** 404 that says what became of it, as long as that is known. */
  async #missing(tenantId: string, id: string): Promise<never> {
    const gone = await lastGone(this.#context.db.query, tenantId, id);
    throw notFound(id, gone);
  }

  /** Why it is where it is, or waits; also of the last one of this id that is gone. 404 when there was none. */
  placement(tenantId: string, id: string): Promise<PlacementReport> {
    return placementOf(this.#context, tenantId, id);
  }

  /** Live ones by tenant and id, one more than `limit` when there are more. */
  list(filter: EnvironmentFilter): Promise<EnvironmentRow[]> {
    return listEnvironments(this.#context.db.query, filter);
  }

  /** `POST /v1/environments`. */
  create(creation: Creation): Promise<Created> {
    return createEnvironment(this.#context, this, creation);
  }

  /**
   * Resolves once it is `paused`; legal when it runs, is being paused or is paused. Calls at once share one, also across replicas. When the host
   * cannot be reached: `unavailable`, it stays `pausing`, and the reconciler goes on with it.
   */
  async pause(uid: string, options: PauseOptions = {}): Promise<EnvironmentRow> {
    const kind = options.onlyIfIdle === true ? 'idle' : 'pause';
    return this.#move(kind, uid, (signal) => pauseEnvironment(this.#context, uid, options, signal));
  }

  /** Resolves once it is `running`; as `pause` the other way, and 503 while its host has no room for it. */
  async resume(uid: string): Promise<EnvironmentRow> {
    return this.#move('resume', uid, (signal) => resumeEnvironment(this.#context, uid, signal));
  }

  /** Resolves with it `draining` once what ran in it has ended, at last after 30 s. 409 when it does not run. */
  drain(uid: string): Promise<EnvironmentRow> {
    return this.#move('drain', uid, (signal) => drainEnvironment(this.#context, uid, signal));
  }

  /** Of what is wrong with the body of a create, what the API tells first. */
  firstProblem(error: unknown, body: unknown): Promise<unknown> {
    return pinFirst(this.#context.db.query, error, body);
  }

  /** `PATCH`: 409 once it is going or gone. Another network is enforced when it resolves. */
  async update(uid: string, request: UpdateEnvironment): Promise<EnvironmentRow> {
    const { before, after } = await updateEnvironment(this.#context, uid, request);
    if (request.network !== undefined) await this.#networks.enforceChange(before, after);
    return after;
  }

  /** Which policy something new gets, in the transaction that admits it: 403 when it may not have what is asked for. */
  chooseNetwork(tx: Tx, wish: NetworkWish): Promise<NetworkPolicy> {
    return chooseNetwork(tx, this.#context.network, wish);
  }

  /** Its host is told what it may reach now. */
  enforceNetwork(uid: string): Promise<void> {
    return this.#networks.enforce(uid);
  }

  /** After a change of its maximum: what runs of it is held to that when it resolves, as far as hosts can be reached. */
  enforceTenantNetwork(tenantId: string): Promise<void> {
    return this.#networks.enforceTenant(tenantId);
  }

  /** It has another credential once this resolves, and the former one is refused. 409 when it does not run. */
  rotateToken(uid: string): Promise<void> {
    return rotateToken(this.#context, uid);
  }

  /** Of one that is `pausing` or `resuming`, whoever began that: what became of it. Begins nothing. */
  settle(uid: string): Promise<EnvironmentRow | undefined> {
    return this.#move('settle', uid, (signal) => settle(this.#context, uid, signal));
  }

  /** For the reconciler: the host of `row`, which was read before that was asked, has its VM paused though it runs, or running though it is paused. */
  async putRight(row: EnvironmentRow): Promise<void> {
    await this.#move('correction', row.uid, (signal) => putRight(this.#context, row, signal));
  }

  /**
   * It runs, or is resumed first when its `auto_resume` says so, and does not count as idle from now on. 409 with its state when it does not run.
   */
  ready(row: EnvironmentRow, signal: AbortSignal): Promise<EnvironmentRow> {
    return ready(this.#context, this, row, signal);
  }

  #move<T>(kind: MoveKind, uid: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const key = `${kind}:${uid}`;
    const underway = this.#moves.get(key);
    if (underway !== undefined) return underway.promise as Promise<T>; // of the same kind, so of the same type
    if (this.#stopping) return Promise.reject(new ProcessStops());
    const abort = new AbortController();
    const promise = work(abort.signal).finally(() => this.#moves.delete(key));
    promise.catch(() => {}); // whoever asked may have left
    this.#moves.set(key, { promise, abort });
    return promise;
  }

  /**
   * Starts under way are left to whoever comes next, those that are being given up and destructions get a moment to finish. All of
   * them are durable: what is cut here goes on elsewhere.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping = true;
    this.#recent[Symbol.dispose]();
    const networks = this.#networks[Symbol.asyncDispose]();
    const starts = [...this.#starts.values(), ...this.#moves.values(), ...this.#watches.values()];
    for (const { abort } of starts) abort.abort(new ProcessStops());
    const late = new AbortController();
    await Promise.race([
      Promise.allSettled([...starts.map(({ promise }) => promise), ...this.#destroys.values(), networks]),
      sleep(STOP_MS, late.signal).catch(() => {}),
    ]);
    late.abort();
  }
}

function notFound(id: string, gone: EnvironmentRow | undefined): AppError {
  const message = `vm ${id} not found`;
  if (gone === undefined) return new AppError('not_found', message);
  const { state, error, gone_at } = gone;
  return new AppError('not_found', message, {
    details: {
      state,
      ...(error === null ? {} : { error }),
      ...(gone_at === null ? {} : { ended_at: gone_at.toISOString() }),
    },
    hint:
      state === 'failed'
        ? `It failed. How it ended is told again by GET /v1/environments/${id}/events.`
        : 'It was destroyed. Its id can be used again.',
  });
}
