/**
 * Drives what is towards what should be. Whoever holds the leader lease, every `intervalMs`: asks each host how it is and compares
 * its VMs with the truth; finishes what others began (destroying, abandoned starts, pauses and resumes); pauses what is idle; ends what has expired; forgets what is old.
 * A host that does not answer, and a step that fails, hold up nothing else.
 */
import { type Clock, type Logger, sleep, withDeadline } from '@fuse/runtime';
import { Checkpointer } from '../checkpoints/checkpointer.ts';
import type { Db } from '../db/db.ts';
import type { HostRow } from '../db/schema.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import type { HostDirectory } from '../hosts/host-directory.ts';
import { allHosts } from '../hosts/host-store.ts';
import { laterFence } from '../hosts/later-fence.ts';
import type { ReconcileMetrics } from '../metrics/reconcile-metrics.ts';
import type { NetworkConfig } from '../network/network-config.ts';
import { SnapshotReconciling } from '../snapshots/snapshot-reconciling.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import { compareHost } from './compare-host.ts';
import { abandonedMoves, abandonedStarts, destroying, dueToEnd, idle, prune } from './due.ts';
import { type HeldLease, LeaderLease } from './leader-lease.ts';
import { Sightings } from './sightings.ts';
import { Tasks } from './tasks.ts';

export interface ReconcilerOptions {
  db: Db;
  hosts: HostDirectory;
  environments: EnvironmentService;
  snapshots: SnapshotService;
  log: Logger;
  clock: Clock;
  clusterTag: string;
  /** This process, in the lease. */
  owner: string;
  intervals: ReconcilerIntervals;
  /** A host in this process: it knows all its VMs from the start, so what it does not have when it is first looked at is gone, and not late. */
  localHostId?: string | undefined;
  metrics?: ReconcileMetrics;
  network: NetworkConfig;
}

export interface ReconcilerIntervals {
  intervalMs: number;
  leaseMs: number;
  /** A host that was not heard of for so long is unreachable and gets nothing new. */
  hostStaleMs: number;
  missingGraceMs: number;
  orphanGraceMs: number;
  pruneEveryMs: number;
  keepGoneMs: number;
  /** How long checkpoints outlive their environment. */
  keepCheckpointsMs: number;
}

export const defaultIntervals: ReconcilerIntervals = {
  intervalMs: 5_000,
  leaseMs: 20_000,
  hostStaleMs: 30_000,
  missingGraceMs: 10_000,
  orphanGraceMs: 60_000,
  pruneEveryMs: 600_000,
  keepGoneMs: 7 * 86_400_000,
  keepCheckpointsMs: 7 * 86_400_000,
};

const HOST_MS = 10_000;
const DISPOSE_MS = 5_000;

export class Reconciler implements AsyncDisposable {
  readonly #options: ReconcilerOptions;
  readonly #lease: LeaderLease;
  readonly #tasks: Tasks;
  readonly #sightings: Sightings;
  readonly #unchecked: Sightings;
  readonly #snapshots: SnapshotReconciling;
  readonly #checkpointer: Checkpointer;
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #isLocalHostSeen = false;
  #prunedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ReconcilerOptions) {
    const { db, owner, intervals, log, clock } = options;
    this.#options = options;
    this.#lease = new LeaderLease(db, { name: 'reconciler', owner, ms: intervals.leaseMs });
    this.#tasks = new Tasks(log);
    this.#sightings = new Sightings(clock);
    this.#unchecked = new Sightings(clock);
    this.#checkpointer = new Checkpointer({ ...options, keepMs: intervals.keepCheckpointsMs });
    const { missingGraceMs, orphanGraceMs } = intervals;
    this.#snapshots = new SnapshotReconciling({ ...options, tasks: this.#tasks, missingGraceMs, orphanGraceMs });
  }

  start(): void {
    this.#loop = this.#run();
  }

  async #run(): Promise<void> {
    const { intervals, log } = this.#options;
    while (!this.#stop.signal.aborted) {
      try {
        await this.cycle();
      } catch (error) {
        if (!this.#stop.signal.aborted) log.error({ err: error }, 'reconciling cycle failed');
      }
      await sleep(intervals.intervalMs, this.#stop.signal).catch(() => {}); // stopped
    }
  }

  /** One round; false when another process is the leader. What it started may still be going on: see `settled`. */
  async cycle(): Promise<boolean> {
    const held = await this.#lease.hold();
    if (held === undefined) return false;
    const measured = this.#options.metrics?.seconds.startTimer();
    const renewal = setInterval(() => {
      this.#lease.hold().catch((error: unknown) => this.#options.log.warn({ err: error }, 'leader lease not renewed'));
    }, this.#options.intervals.leaseMs / 3);
    try {
      // Side by side: a host that does not answer holds up nothing else.
      await Promise.all([
        this.#step('hosts', () => this.#checkHosts(held)),
        this.#step('destroying', () => this.#finishDestroying()),
        this.#step('starts', () => this.#endAbandonedStarts()),
        this.#step('moves', () => this.#settleAbandonedMoves()),
        this.#step('idle', () => this.#pauseIdle()),
        this.#step('expiry', () => this.#destroyExpired()),
        this.#step('snapshots', () => this.#snapshots.startDue()),
        this.#step('checkpoints', () => this.#checkpointer.startDue()),
        this.#step('pruning', () => this.#prune()),
      ]);
    } finally {
      clearInterval(renewal);
      measured?.();
      this.#options.metrics?.cycles.inc();
    }
    return true;
  }

  async settled(): Promise<void> {
    await Promise.all([this.#tasks.settled(), this.#checkpointer.settled()]);
  }

  async #step(step: string, work: () => Promise<void>): Promise<void> {
    if (this.#stop.signal.aborted) return;
    try {
      await work();
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#options.log.error({ err: error, step }, 'reconciling step failed');
    }
  }

  async #checkHosts(held: HeldLease): Promise<void> {
    const rows = await allHosts(this.#options.db.query);
    await Promise.all(rows.map((host) => this.#step(`host ${host.id}`, () => this.#checkHost(host, held))));
  }

  async #checkHost(host: HostRow, held: HeldLease): Promise<void> {
    const { db, hosts, environments, log, clusterTag, intervals, localHostId, network } = this.#options;
    const isComplete = host.id === localHostId && !this.#isLocalHostSeen;
    const fence = { tag: clusterTag, value: held.fence };
    try {
      const { signal } = this.#stop;
      if (!(await hosts.heartbeat(host, { signal, fence })))
        return await hosts.noteSilence(host, intervals.hostStaleMs);
    } catch (error) {
      const seen = laterFence(error);
      if (seen !== undefined) await this.#lease.raise(held, seen);
      throw error;
    }
    const comparison = {
      db,
      hosts,
      environments,
      log,
      clusterTag,
      tasks: this.#tasks,
      sightings: this.#sightings,
      unchecked: this.#unchecked,
      missingGraceMs: isComplete ? 0 : intervals.missingGraceMs,
      orphanGraceMs: intervals.orphanGraceMs,
      fence,
      network,
      metrics: this.#options.metrics,
      stillLeader: () => this.#lease.stillHeld(held),
    };
    await withDeadline(
      HOST_MS,
      `comparing host ${host.id}`,
      (signal) => compareHost(comparison, host, signal),
      this.#stop.signal,
    );
    if (isComplete) this.#isLocalHostSeen = true;
    await withDeadline(
      HOST_MS,
      `comparing snapshots of host ${host.id}`,
      (signal) => this.#snapshots.compareHost(host, comparison, signal),
      this.#stop.signal,
    );
  }

  async #finishDestroying(): Promise<void> {
    const { db, environments } = this.#options;
    for (const { uid } of await destroying(db.query)) this.#tasks.start(`env:${uid}`, () => environments.destroy(uid));
  }

  async #endAbandonedStarts(): Promise<void> {
    const { db, environments } = this.#options;
    for (const row of await abandonedStarts(db.query))
      this.#tasks.start(`env:${row.uid}`, () => environments.endAbandonedStart(row));
  }

  async #settleAbandonedMoves(): Promise<void> {
    const { db, environments } = this.#options;
    for (const { uid } of await abandonedMoves(db.query))
      this.#tasks.start(`env:${uid}`, () => environments.settle(uid));
  }

  async #pauseIdle(): Promise<void> {
    const { db, environments, metrics } = this.#options;
    for (const { uid } of await idle(db.query)) {
      metrics?.idleSuspected.inc();
      this.#tasks.start(`env:${uid}`, async () => {
        await environments.pause(uid, { onlyIfIdle: true });
        metrics?.idleEnded.inc();
      });
    }
  }

  async #destroyExpired(): Promise<void> {
    const { db, environments, metrics } = this.#options;
    for (const { uid, cause } of await dueToEnd(db.query)) {
      if (cause === 'overdue') metrics?.overdueSuspected.inc();
      if (cause === 'idle') metrics?.idleSuspected.inc();
      this.#tasks.start(`env:${uid}`, async () => {
        if (!(await environments.endIfDue(uid))) return;
        if (cause === 'overdue') metrics?.overdueEnded.inc();
        if (cause === 'idle') metrics?.idleEnded.inc();
      });
    }
  }

  async #prune(): Promise<void> {
    const { db, clock, intervals } = this.#options;
    if (clock.monotonic() - this.#prunedAt < intervals.pruneEveryMs) return;
    await prune(db.query, intervals.keepGoneMs);
    this.#prunedAt = clock.monotonic();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error('the orchestrator stops'));
    await this.#loop;
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([
      this.settled(), // what is not done by then, the next leader does
      new Promise<void>((resolve) => {
        timer = setTimeout(resolve, DISPOSE_MS);
      }),
    ]);
    clearTimeout(timer);
    await this.#lease.release().catch(() => {}); // it ends by itself
  }
}
