/** The snapshots of this host, by id. Listing never waits for any of them. */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { type HostSnapshot, SnapshotId } from '@fuse/host-protocol';
import type { Logger } from '@fuse/runtime';
import { removeSnapshotDirectory } from './snapshot-directory.ts';
import { loadSnapshotRecord } from './snapshot-record.ts';
import {
  type HeldSnapshot,
  type MakeFiles,
  type SnapshotAbout,
  type SnapshotPlace,
  StoredSnapshot,
} from './stored-snapshot.ts';

const LEFTOVER = /^\.(?:making|removed)-/;

export class Snapshots implements AsyncDisposable {
  readonly #directory: string;
  readonly #log: Logger;
  readonly #snapshots = new Map<string, StoredSnapshot>();
  #lastFinish: Promise<unknown> = Promise.resolve();
  #closing = false;

  private constructor(directory: string, log: Logger) {
    this.#directory = directory;
    this.#log = log;
  }

  /** Takes up what an earlier host agent left in `<data directory>/snapshots`. */
  static async open(options: { directory: string; log: Logger }): Promise<Snapshots> {
    const snapshots = new Snapshots(options.directory, options.log);
    await mkdir(options.directory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(options.directory)) await snapshots.#load(name);
    return snapshots;
  }

  list(): HostSnapshot[] {
    return [...this.#snapshots.values()].map((snapshot) => snapshot.view());
  }

  get(id: string): StoredSnapshot {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined || snapshot.deleting) throw new AppError('not_found', `there is no snapshot "${id}"`);
    return snapshot;
  }

  has(id: string): boolean {
    const snapshot = this.#snapshots.get(id);
    return snapshot !== undefined && !snapshot.deleting;
  }

  /** Conflict when that id is another's. */
  find({ id, tag, vm_id }: Pick<SnapshotAbout, 'id' | 'tag' | 'vm_id'>): StoredSnapshot | undefined {
    const existing = this.#snapshots.get(id);
    if (existing?.deleting) throw new AppError('conflict', `snapshot "${id}" is being deleted`);
    if (existing !== undefined && (existing.tag !== tag || existing.vmId !== vm_id))
      throw new AppError('conflict', `snapshot "${id}" is another one`);
    return existing;
  }

  /** The id of the last one of this VM with memory, the best to store the next one's difference to. */
  lastOf(vmId: string): string | undefined {
    const ofVm = this.list().filter(
      ({ id, vm_id, include_memory }) => vm_id === vmId && include_memory && this.has(id),
    );
    ofVm.sort((one, other) => (one.created_at < other.created_at ? -1 : 1));
    return ofVm.at(-1)?.id;
  }

  /** Made once, however often it is asked for; resolves once it is usable. Nothing is left of one that fails. */
  async add(about: SnapshotAbout, makeFiles: MakeFiles): Promise<{ snapshot: StoredSnapshot; created: boolean }> {
    const existing = this.find(about);
    if (existing === undefined && this.#closing) throw new AppError('unavailable', 'the host agent is stopping');
    const snapshot = existing ?? StoredSnapshot.make(this.#place(about.id), about, makeFiles);
    this.#snapshots.set(about.id, snapshot);
    try {
      await snapshot.made;
    } catch (error) {
      if (!snapshot.deleting) this.#forget(about.id, snapshot);
      throw error;
    }
    return { snapshot, created: existing === undefined };
  }

  /** 404 when it is not here, integrity_error when it is damaged. */
  hold(id: string, signal: AbortSignal): Promise<HeldSnapshot> {
    return this.get(id).hold(signal);
  }

  async delete(id: string): Promise<{ deleted: boolean; freed_bytes: number }> {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined) {
      const freed_bytes = await removeSnapshotDirectory(join(this.#directory, id));
      return { deleted: freed_bytes > 0, freed_bytes };
    }
    const freed_bytes = await snapshot.delete();
    this.#forget(id, snapshot);
    return { deleted: true, freed_bytes };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing = true;
    await Promise.all([...this.#snapshots.values()].map((snapshot) => snapshot.detach()));
  }

  #place(id: string): SnapshotPlace {
    return {
      directory: join(this.#directory, id),
      log: this.#log,
      hold: (other, signal) => this.hold(other, signal),
      inTurn: (work) => {
        const turn = this.#lastFinish.then(work);
        this.#lastFinish = turn.catch(() => {});
        return turn;
      },
    };
  }

  #forget(id: string, snapshot: StoredSnapshot): void {
    if (this.#snapshots.get(id) === snapshot) this.#snapshots.delete(id);
  }

  async #load(name: string): Promise<void> {
    const directory = join(this.#directory, name);
    if (LEFTOVER.test(name)) {
      await rm(directory, { recursive: true, force: true });
      this.#log.info({ entry: name }, 'snapshot leftover removed');
    }
    if (!SnapshotId.safeParse(name).success) return;
    try {
      const record = await loadSnapshotRecord(directory);
      if (record === undefined) throw new Error('there is no record');
      this.#snapshots.set(name, StoredSnapshot.load(this.#place(name), record));
    } catch (error) {
      this.#log.error({ err: error, snapshot_id: name }, 'snapshot record unreadable: left alone until it is deleted');
    }
  }
}
