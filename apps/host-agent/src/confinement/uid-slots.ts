/**
 * The users that VMMs run as: numbers from a base on, each for one live VMM of this *machine*, whichever host agent started it (there may be several, and makers of templates).
 * Who has one is a symbolic link in a directory that all of them share, named for the number, whose target says for whom: made whole or not at all, by one alone.
 */
import { lstatSync, mkdirSync, readdirSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';

export const DEFAULT_UID_BASE = 870_000;
const SLOTS = 4_096;

export interface TakenUid {
  uid: number;
  bootId: string;
  /** The machine's directory. */
  owner: string;
  takenAtMs: number;
}

export class UidSlots {
  readonly #directory: string;
  readonly #base: number;
  readonly #bootId: string;
  #next = Math.floor(Math.random() * SLOTS);

  constructor(options: { directory: string; base: number; bootId: string }) {
    this.#directory = options.directory;
    this.#base = options.base;
    this.#bootId = options.bootId;
    mkdirSync(options.directory, { recursive: true, mode: 0o700 });
  }

  take(owner: string): number {
    for (let tried = 0; tried < SLOTS; tried++) {
      const uid = this.#base + this.#next;
      this.#next = (this.#next + 1) % SLOTS;
      try {
        symlinkSync(`${this.#bootId} ${owner}`, this.#pathOf(uid));
        return uid;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
    }
    throw new AppError('unavailable', `all ${SLOTS} users of VMMs are taken`, { retryAfterSeconds: 5 });
  }

  isOf(uid: number, owner: string): boolean {
    return this.#read(uid)?.owner === owner;
  }

  /** Does nothing to one that is somebody else's by now. */
  free(uid: number, owner: string): void {
    if (this.isOf(uid, owner)) unlinkSync(this.#pathOf(uid));
  }

  taken(): TakenUid[] {
    const uids = readdirSync(this.#directory).filter((name) => /^\d+$/.test(name));
    return uids.map((uid) => this.#read(Number(uid))).filter((each) => each !== undefined);
  }

  #read(uid: number): TakenUid | undefined {
    const path = this.#pathOf(uid);
    try {
      const target = readlinkSync(path);
      const end = target.indexOf(' ');
      const takenAtMs = lstatSync(path).mtimeMs;
      return { uid, bootId: target.slice(0, end), owner: target.slice(end + 1), takenAtMs };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }

  #pathOf(uid: number): string {
    return join(this.#directory, String(uid));
  }
}
