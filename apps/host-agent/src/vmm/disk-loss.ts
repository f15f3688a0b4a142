/**
 * Whoever watches what a VMM writes looks every few seconds, in which a VMM that fills the disk gets far. So each of them looks as soon as the disk has lost much since the last time, to
 * whomever: the disk is asked a few times a second, once for all VMMs that are on it.
 */
import { statSync } from 'node:fs';
import { statfs } from 'node:fs/promises';

const ASK_MS = 200;
const MUCH_BYTES = 268_435_456;

const disks = new Map<number, Disk>();

/** Calls `look` until what it answers is called. `path` is on the disk, and stays there until then. */
export function onDiskLoss(path: string, look: () => void, muchBytes: number = MUCH_BYTES): () => void {
  const { dev } = statSync(path);
  const disk = disks.get(dev) ?? new Disk(muchBytes);
  disks.set(dev, disk);
  disk.looks.set(look, path);
  return () => {
    disk.looks.delete(look);
    if (disk.looks.size > 0 || disks.get(dev) !== disk) return;
    disk.end();
    disks.delete(dev);
  };
}

class Disk {
  readonly looks = new Map<() => void, string>();
  readonly #muchBytes: number;
  readonly #asking: NodeJS.Timeout;
  /** The most that was free since everybody looked. */
  #mostFreeBytes = 0;

  constructor(muchBytes: number) {
    this.#muchBytes = muchBytes;
    this.#asking = setInterval(() => void this.#ask(), ASK_MS).unref();
  }

  end(): void {
    clearInterval(this.#asking);
  }

  async #ask(): Promise<void> {
    const [path] = this.looks.values();
    const stats = path === undefined ? undefined : await statfs(path).catch(() => undefined); // its VM has just gone
    if (stats === undefined) return;
    const freeBytes = stats.bavail * stats.bsize;
    this.#mostFreeBytes = Math.max(this.#mostFreeBytes, freeBytes);
    if (this.#mostFreeBytes - freeBytes < this.#muchBytes) return;
    this.#mostFreeBytes = freeBytes;
    for (const look of this.looks.keys()) look();
  }
}
