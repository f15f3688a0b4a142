/**
 * The reconciler's part in snapshots: finishes what others began (takings, deletions, restores), collects what is over its time, and compares
 * each host's snapshots with the truth.
 */
import type { Fence, HostSnapshot } from '@fuse/host-protocol';
import type { Clock, Logger } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { HostRow, SnapshotRow } from '../db/schema.ts';
import type { HostDirectory } from '../hosts/host-directory.ts';
import { Sightings } from '../reconciling/sightings.ts';
import type { Tasks } from '../reconciling/tasks.ts';
import {
  abandonedRestores,
  abandonedTakings,
  deleting,
  expectedOnHost,
  expiredSnapshots,
  strandedRestoring,
} from './due.ts';
import { lostOnHost } from './lost-snapshots.ts';
import type { SnapshotService } from './snapshot-service.ts';
import { snapshotById, transitionSnapshot } from './snapshot-store.ts';
import { NotOurs } from './take-snapshot.ts';

export interface SnapshotReconcilingOptions {
  db: Db;
  hosts: HostDirectory;
  snapshots: SnapshotService;
  tasks: Tasks;
  log: Logger;
  clock: Clock;
  clusterTag: string;
  /** How long one may be missing from its host (its agent restarts) before it is called lost. */
  missingGraceMs: number;
  /** How long one with our tag may be unknown to us before it is deleted. */
  orphanGraceMs: number;
}

/** Asked and shown right before what cannot be undone. */
interface Leader {
  stillLeader(): Promise<boolean>;
  fence: Fence;
}

export class SnapshotReconciling {
  readonly #options: SnapshotReconcilingOptions;
  readonly #sightings: Sightings;

  constructor(options: SnapshotReconcilingOptions) {
    this.#options = options;
    this.#sightings = new Sightings(options.clock);
  }

  /** Starts what is due; each piece of work is a task of its own. */
  async startDue(): Promise<void> {
    const { db, snapshots } = this.#options;
    for (const row of await abandonedTakings(db.query)) this.#start(row.id, () => snapshots.goOnTaking(row));
    for (const row of await abandonedRestores(db.query)) this.#start(row.uid, () => snapshots.goOnRestoring(row));
    for (const { id } of await deleting(db.query)) this.#start(id, () => snapshots.delete(id, { force: true }));
    for (const { id } of await expiredSnapshots(db.query)) this.#start(id, () => snapshots.collect(id));
    for (const row of await strandedRestoring(db.query))
      await db.transaction((tx) => transitionSnapshot(tx, row, 'ready'));
  }

  #start(id: string, work: () => Promise<unknown>): void {
    this.#options.tasks.start(`snapshot:${id}`, () =>
      work().catch((error: unknown) => {
        if (!(error instanceof NotOurs)) throw error;
      }),
    );
  }

  /** What should be there is read before the host is asked, so that one which is just ready is never taken for missing. */
  async compareHost(host: HostRow, leader: Leader, signal: AbortSignal): Promise<void> {
    const expected = await expectedOnHost(this.#options.db.query, host.id);
    const found = await this.#options.hosts.clientOf(host, leader.fence).snapshots(signal);
    const byId = new Map(found.map((snapshot) => [snapshot.id, snapshot]));
    for (const row of expected) await this.#checkExpected(host, row, byId.get(row.id));
    const known = new Set(expected.map(({ id }) => id));
    const others = found.filter(({ id, tag }) => tag === this.#options.clusterTag && !known.has(id));
    for (const snapshot of others) await this.#checkUnexpected(host, snapshot, leader);
    this.#sightings.keepOnly(host.id, [...known, ...others.map(({ id }) => id)]);
  }

  async #checkExpected(host: HostRow, row: SnapshotRow, found: HostSnapshot | undefined): Promise<void> {
    if (found !== undefined && found.state !== 'broken') {
      this.#sightings.forget(host.id, row.id);
      return;
    }
    if (found === undefined && this.#sightings.ageMs(host.id, row.id) < this.#options.missingGraceMs) return;
    const reason = found === undefined ? 'missing from its host' : (found.error ?? 'damaged');
    this.#options.log.warn({ snapshot_id: row.id, host_id: host.id, reason }, 'snapshot lost on its host');
    await this.#options.db.transaction((tx) => lostOnHost(tx, row, reason));
  }

  /** Ours by its tag: being taken or deleted, a copy of an exported one, an error's remains, or nobody's. */
  async #checkUnexpected(host: HostRow, found: HostSnapshot, { stillLeader, fence }: Leader): Promise<void> {
    const row = await snapshotById(this.#options.db.query, found.id);
    const isCopy = row !== undefined && row.manifest_key !== null && found.state !== 'broken';
    if (row !== undefined && (row.host_id === host.id || isCopy)) return;
    if (this.#sightings.ageMs(host.id, found.id) < this.#options.orphanGraceMs) return;
    if (!(await stillLeader())) return;
    this.#options.log.warn({ snapshot_id: found.id, host_id: host.id }, 'deleting a snapshot that nothing owns');
    this.#start(found.id, () => this.#options.hosts.clientOf(host, fence).deleteSnapshot(found.id));
  }
}
