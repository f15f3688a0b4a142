/**
 * Checkpoints: snapshots that running environments are taken of by themselves, every `checkpoint_interval_seconds`. The time is committed first,
 * so that two processes never take one twice, and a failed one waits for the next interval.
 * Called by whoever reconciles; it starts work and waits for none of it, with tasks of its own, so that it never delays anything else.
 */
import type { Logger } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import { Tasks } from '../reconciling/tasks.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import { claimCheckpoint, dueCheckpoints, keepCheckpointsOfGone, retireCheckpoints } from './due.ts';

export interface CheckpointerOptions {
  db: Db;
  snapshots: SnapshotService;
  log: Logger;
  /** How long checkpoints outlive their environment. */
  keepMs: number;
}

const COMMENT = 'checkpoint';

export class Checkpointer {
  readonly #options: CheckpointerOptions;
  readonly #tasks: Tasks;

  constructor(options: CheckpointerOptions) {
    this.#options = options;
    this.#tasks = new Tasks(options.log);
  }

  async startDue(): Promise<void> {
    const { db, keepMs } = this.#options;
    await retireCheckpoints(db.query);
    await keepCheckpointsOfGone(db.query, keepMs);
    for (const { uid } of await dueCheckpoints(db.query)) this.#tasks.start(`checkpoint:${uid}`, () => this.#take(uid));
  }

  settled(): Promise<void> {
    return this.#tasks.settled();
  }

  async #take(uid: string): Promise<void> {
    const { db, snapshots } = this.#options;
    const environment = await claimCheckpoint(db.query, uid);
    if (environment === undefined) return;
    const row = await db.transaction((tx) =>
      snapshots.begin(tx, { environment, isCheckpoint: true, request: { comment: COMMENT } }),
    );
    await snapshots.take(row).ready;
    await retireCheckpoints(db.query);
  }
}
