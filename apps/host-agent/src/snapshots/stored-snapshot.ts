/**
 * One snapshot of this host and its directory.
 *
 *   taking -> usable     made aside, then renamed: VMs may start from it
 *          -> (gone)     it could not be taken: nothing is left
 *   usable -> durable    memory stored as the difference to its parent's, flushed, digests recorded
 *          -> broken     it could not be, or bytes have changed; so may a durable one become
 *   any    -> (gone)     deleted, once nobody holds it
 */
import { randomBytes } from 'node:crypto';
import { mkdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { HostSnapshot } from '@fuse/host-protocol';
import { type Logger, sleep } from '@fuse/runtime';
import { Notifier } from '../execs/notifier.ts';
import type { SnapshotFiles } from '../vmm/driver.ts';
import { hostBootId } from '../vmm/process.ts';
import { type FinishPlace, finishSnapshot } from './finish-snapshot.ts';
import { loadableMachineState } from './machine-state.ts';
import { SharedMemory } from './shared-memory.ts';
import { removeSnapshotDirectory, removeUncounted } from './snapshot-directory.ts';
import {
  diskUseOf,
  namesOf,
  SNAPSHOT_FORMAT,
  type SnapshotRecord,
  saveSnapshotRecord,
  viewOf,
} from './snapshot-record.ts';
import { describeFiles, verifyFiles } from './stored-files.ts';

/** Whoever took it to start VMs from it has begun to by then; they come before what makes it durable, for so long at most. */
const STARTS_COME_WITHIN_MS = 40;
const STARTS_GO_FIRST_MS = 2_000;

/** What is known of a snapshot before it is there. */
export type SnapshotAbout = Pick<
  SnapshotRecord,
  | 'id'
  | 'tag'
  | 'vm_id'
  | 'image'
  | 'shape'
  | 'made_on'
  | 'include_memory'
  | 'network_card'
  | 'parent_id'
  | 'created_at'
>;

/** Makes the files in the (empty) directory and names them; the disk is SNAPSHOT_DISK_FILE. */
export type MakeFiles = (directory: string, signal: AbortSignal) => Promise<{ files: string[]; pauseMs?: number }>;

/** While it is held its files stay. They have been verified. */
export interface HeldSnapshot extends AsyncDisposable {
  readonly directory: string;
  readonly record: SnapshotRecord;
  /** Aborts when it is to be deleted: deleting waits for whoever holds it. */
  readonly signal: AbortSignal;
  /** Of one with memory: what one more VM starts from. */
  machineState: () => Promise<SnapshotFiles>;
}

/** Its directory is `<data directory>/snapshots/<id>`. */
export interface SnapshotPlace extends FinishPlace {
  /** One at a time on this host. */
  inTurn: <T>(work: () => Promise<T>) => Promise<T>;
}

export class StoredSnapshot {
  readonly #place: SnapshotPlace;
  readonly #about: SnapshotAbout;
  readonly #stopping = new AbortController();
  readonly #changes = new Notifier();
  readonly #shared: SharedMemory;
  #record: SnapshotRecord | undefined;
  #made: Promise<void> = Promise.resolve();
  #finished: Promise<void> = Promise.resolve();
  #verifying: Promise<void> | undefined;
  #holds = 0;
  /** Files that do not count any more may lie beside those that do. */
  #isUntidy = false;
  #deleting: Promise<number> | undefined;

  private constructor(place: SnapshotPlace, about: SnapshotAbout) {
    this.#place = place;
    this.#about = about;
    this.#shared = new SharedMemory(this.#log, this.#stopping.signal);
  }

  static make(place: SnapshotPlace, about: SnapshotAbout, makeFiles: MakeFiles): StoredSnapshot {
    const snapshot = new StoredSnapshot(place, about);
    snapshot.#made = snapshot.#make(makeFiles);
    snapshot.#made.then(
      () => snapshot.#finishInBackground(),
      () => {},
    );
    return snapshot;
  }

  /** One that an earlier host agent left: what it had not finished is finished, if its bytes are sure to be whole. */
  static load(place: SnapshotPlace, record: SnapshotRecord): StoredSnapshot {
    const snapshot = new StoredSnapshot(place, record);
    snapshot.#record = record;
    snapshot.#isUntidy = true;
    if (record.state === 'usable') snapshot.#finishInBackground();
    else snapshot.#tidyInBackground();
    return snapshot;
  }

  get tag(): string {
    return this.#about.tag;
  }

  get vmId(): string {
    return this.#about.vm_id;
  }

  get deleting(): boolean {
    return this.#deleting !== undefined;
  }

  /** Resolves once it is usable; rejects with why it could not be made. */
  get made(): Promise<void> {
    return this.#made;
  }

  view(): HostSnapshot {
    if (this.#record !== undefined) return viewOf(this.#record);
    const { made_on: _madeOn, ...shown } = this.#about;
    return { ...shown, state: 'taking' };
  }

  /** Resolves once it is durable or broken, after `timeoutMs`, or when the signal aborts. */
  async waitForEnd(timeoutMs: number, signal: AbortSignal): Promise<void> {
    const until = performance.now() + timeoutMs;
    const isOpen = () => this.#record === undefined || this.#record.state === 'usable';
    while (isOpen() && !signal.aborted && !this.#stopping.signal.aborted) {
      const leftMs = until - performance.now();
      if (leftMs <= 0) return;
      await this.#changes.wait({ timeoutMs: leftMs, signal });
    }
  }

  /** Waits until it is usable. Rejects with integrity_error when it is damaged. */
  async hold(signal: AbortSignal): Promise<HeldSnapshot> {
    const { directory } = this.#place;
    const release = this.#hold();
    try {
      await this.#made;
      const record = this.#record;
      if (record === undefined) throw new AppError('not_found', `there is no snapshot "${this.#about.id}"`);
      if (record.state === 'broken') throw broken(record);
      await this.#verify(record);
      signal.throwIfAborted();
      return {
        directory,
        record,
        signal: this.#stopping.signal,
        machineState: () => this.#shared.next(directory, loadableMachineState(directory, namesOf(record))),
        [Symbol.asyncDispose]: async () => release(),
      };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Resolves with the bytes that are free now: those of files that had no other name. */
  delete(): Promise<number> {
    this.#deleting ??= this.#remove().catch((error: unknown) => {
      this.#deleting = undefined;
      throw error;
    });
    return this.#deleting;
  }

  /** Stops what is under way: the next host agent finishes it. */
  async detach(): Promise<void> {
    this.#stopping.abort(new AppError('unavailable', 'the host agent is stopping'));
    this.#changes.notify();
    await this.#made.catch(() => {});
    await this.#finished;
  }

  async #make(makeFiles: MakeFiles): Promise<void> {
    const { directory } = this.#place;
    const { signal } = this.#stopping;
    const making = join(dirname(directory), `.making-${basename(directory)}-${randomBytes(4).toString('hex')}`);
    await mkdir(making, { mode: 0o700 });
    try {
      const { files, pauseMs } = await makeFiles(making, signal);
      signal.throwIfAborted();
      const record: SnapshotRecord = {
        ...this.#about,
        format: SNAPSHOT_FORMAT,
        state: 'usable',
        ...(pauseMs === undefined ? {} : { pause_ms: pauseMs }),
        ...(await diskUseOf(making, files)),
        files: await describeFiles(making, files),
        boot_id: await hostBootId(),
      };
      await saveSnapshotRecord(making, record, { flush: false });
      await rename(making, directory);
      this.#record = record;
      this.#changes.notify();
    } catch (error) {
      await rm(making, { recursive: true, force: true });
      throw error;
    }
  }

  #finishInBackground(): void {
    const log = this.#log;
    this.#finished = this.#startsGoFirst()
      .then(() => this.#place.inTurn(() => this.#finish()))
      .catch(async (error: unknown) => {
        if (this.#stopping.signal.aborted) return;
        log.error({ err: error }, 'snapshot could not be made durable');
        await this.#break(error);
      })
      .catch((error: unknown) => log.error({ err: error }, 'snapshot record not saved'))
      .finally(() => this.#changes.notify());
    this.#tidyInBackground();
  }

  get #log(): Logger {
    return this.#place.log.child({ snapshot_id: this.#about.id });
  }

  /** Both want the processor, and somebody waits for the VMs. */
  async #startsGoFirst(): Promise<void> {
    const { signal } = this.#stopping;
    await sleep(STARTS_COME_WITHIN_MS, signal);
    const until = performance.now() + STARTS_GO_FIRST_MS;
    for (let leftMs = STARTS_GO_FIRST_MS; this.#holds > 0 && leftMs > 0; leftMs = until - performance.now()) {
      await this.#changes.wait({ timeoutMs: leftMs, signal });
      signal.throwIfAborted();
    }
  }

  async #finish(): Promise<void> {
    const { signal } = this.#stopping;
    const record = this.#record;
    if (record?.state !== 'usable' || signal.aborted) return;
    if (record.parent_id !== undefined) this.#isUntidy = true;
    this.#record = await finishSnapshot(this.#place, record, signal);
  }

  /** Once nobody holds it: whoever began to hold it earlier may read what counted then. */
  #tidyInBackground(): void {
    this.#finished = this.#finished
      .then(() => this.#tidy())
      .catch((error: unknown) => this.#log.error({ err: error }, 'files that do not count not removed'));
  }

  async #tidy(): Promise<void> {
    if (!this.#isUntidy || this.#holds > 0 || this.#record?.state !== 'durable' || this.deleting) return;
    await removeUncounted(this.#place.directory, namesOf(this.#record), this.#shared.flatName);
    this.#isUntidy = false;
  }

  /** Those who come at the same time share one reading. */
  async #verify(record: SnapshotRecord): Promise<void> {
    this.#verifying ??= verifyFiles(this.#place.directory, record.files, this.#stopping.signal).finally(() => {
      this.#verifying = undefined;
    });
    try {
      await this.#verifying;
    } catch (error) {
      if (error instanceof AppError && error.code === 'integrity_error') await this.#break(error);
      throw error;
    }
  }

  async #break(error: unknown): Promise<void> {
    if (this.#record === undefined || this.#record.state === 'broken') return;
    const why = error instanceof Error ? error.message : String(error);
    this.#record = { ...this.#record, state: 'broken', error: why };
    this.#changes.notify();
    await saveSnapshotRecord(this.#place.directory, this.#record, { flush: true });
  }

  #hold(): () => void {
    if (this.#deleting !== undefined) throw new AppError('not_found', `snapshot "${this.#about.id}" is being deleted`);
    this.#holds += 1;
    let held = true;
    return () => {
      if (held) this.#holds -= 1;
      held = false;
      if (this.#isUntidy && this.#holds === 0) this.#tidyInBackground();
      this.#changes.notify();
    };
  }

  async #remove(): Promise<number> {
    const { directory } = this.#place;
    this.#stopping.abort(
      new AppError('conflict', 'the snapshot was deleted', { details: { reason: 'snapshot_deleted' } }),
    );
    this.#changes.notify();
    await this.#made.catch(() => {});
    await this.#finished;
    while (this.#holds > 0) await this.#changes.wait();
    return removeSnapshotDirectory(directory);
  }
}

function broken({ id, error }: SnapshotRecord): AppError {
  return new AppError('integrity_error', `snapshot "${id}" is damaged: ${error ?? 'its bytes are not what they were'}`);
}
