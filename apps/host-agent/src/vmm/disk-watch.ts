/**
 * What a VMM takes of its host's disk where it may write: the entries of its directories and the bytes of its files, those included that it has removed and still has open. A file
 * that was given to it (its disk) has bounds of its own.
 */
import { type BigIntStats, constants, readdirSync, statSync } from 'node:fs';
import { lstat, open, opendir } from 'node:fs/promises';
import { join } from 'node:path';

const O_PATH = 0o10000000;
const BLOCK_BYTES = 512n;

export interface Limits {
  entries: number;
  bytes: number;
}

/** Directories that are not of its making, by name. Any other is too much. */
export interface Directories {
  readonly [name: string]: Directories;
}

export interface Watched {
  /** In a directory where it may not write. */
  path: string;
  known?: Directories;
  /** Its process and its user. Without: all files count, and none that was removed. */
  owner?: { pid: number; uid: number } | undefined;
  given?: readonly string[];
}

export async function isWithin(watched: Watched, limits: Limits): Promise<boolean> {
  const given = await Promise.all((watched.given ?? []).map(identityAt));
  const tally = new Tally(limits, watched.owner?.uid, new Set(given));
  await tally.addDirectory(watched.path, watched.known ?? {});
  if (watched.owner !== undefined) tally.addRemoved(watched.owner.pid, (await lstat(watched.path)).dev);
  return !tally.isTooMuch;
}

class Tally {
  isTooMuch = false;
  readonly #limits: Limits;
  readonly #uid: number | undefined;
  /** What counts no more, or not at all. */
  readonly #seen: Set<string>;
  #entries = 0;
  #bytes = 0n;

  constructor(limits: Limits, uid: number | undefined, seen: Set<string>) {
    this.#limits = limits;
    this.#uid = uid;
    this.#seen = seen;
  }

  /** It may become something else at any time, so it is opened first, and no link is followed. One that is not there any more is no matter. */
  async addDirectory(path: string, known: Directories): Promise<void> {
    const handle = await open(path, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW).catch(() => undefined);
    if (handle === undefined) return;
    try {
      const opened = `/proc/self/fd/${handle.fd}`;
      for await (const { name } of await opendir(opened)) {
        await this.#addEntry(join(opened, name), known[name]);
        if (this.isTooMuch) return;
      }
    } finally {
      await handle.close();
    }
  }

  /** On this device: what is in memory alone is no file of the host's disk. Looked at synchronously: it is a few dozen, and waits for nothing. */
  addRemoved(pid: number, device: number): void {
    const directory = `/proc/${pid}/fd`;
    for (const name of readdirSync(directory)) {
      const stats = statOf(join(directory, name));
      if (stats?.isFile() && stats.nlink === 0n && stats.dev === BigInt(device)) this.#addFile(stats);
    }
  }

  async #addEntry(path: string, known: Directories | undefined): Promise<void> {
    this.#entries += 1;
    this.isTooMuch ||= this.#entries > this.#limits.entries;
    const stats = await lstat(path, { bigint: true }).catch(() => undefined); // it may be gone by now
    if (stats === undefined) return;
    if (!stats.isDirectory()) this.#addFile(stats);
    else if (known === undefined) this.isTooMuch = true;
    else await this.addDirectory(path, known);
  }

  #addFile(stats: BigIntStats): void {
    const identity = identityOf(stats);
    if (this.#seen.has(identity) || (this.#uid !== undefined && stats.uid !== BigInt(this.#uid))) return;
    this.#seen.add(identity);
    this.#bytes += stats.blocks * BLOCK_BYTES;
    this.isTooMuch ||= this.#bytes > BigInt(this.#limits.bytes);
  }
}

const identityOf = ({ dev, ino }: BigIntStats): string => `${dev}:${ino}`;

const identityAt = (path: string): Promise<string> => lstat(path, { bigint: true }).then(identityOf, () => ''); // none has it

function statOf(path: string): BigIntStats | undefined {
  try {
    return statSync(path, { bigint: true });
  } catch {
    return undefined; // closed since
  }
}
