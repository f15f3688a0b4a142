/** The log of one command of a test host: frames with offsets, bounded as a real host bounds it, followed with backpressure. */
import { encodeFrame, frameType } from '@fuse/contract';
import type { StartExec } from '@fuse/host-protocol';

/** A follower that took nothing for so long holds nothing any more. */
const STALLED_MS = 10_000;

interface Segment {
  offset: number;
  bytes: Buffer;
}

export interface Follower {
  /** What it has of the log. */
  at: number;
  movedAt: number;
}

export class TestHostLog {
  readonly segments: Segment[] = [];
  readonly followers = new Set<Follower>();
  /** Told when reading the command's output should stop or go on. */
  onHold: (held: boolean) => void = () => {};
  end = 0;
  truncated = false;
  gap: { from: number; to: number } | undefined;
  readonly #maxBytes: number;
  readonly #keepsEnds: boolean;
  readonly #holdMs: number | undefined;
  #unfollowedSince = Date.now();
  #held = false;
  #waiters = new Set<() => void>();

  constructor({ max_log_bytes, keep, hold }: Pick<StartExec, 'max_log_bytes' | 'keep' | 'hold'>) {
    this.#maxBytes = max_log_bytes;
    this.#keepsEnds = keep === 'ends';
    this.#holdMs = hold?.until_followed_ms;
  }

  append(type: number, payload: Buffer): void {
    const bytes = Buffer.from(encodeFrame(type, payload));
    if (!this.#keepsEnds && type !== frameType.exit && this.end + payload.length > this.#maxBytes) {
      this.truncated = true;
      return;
    }
    this.segments.push({ offset: this.end, bytes });
    this.end += bytes.length;
    this.settle();
    this.wake();
  }

  /** Drops what is over the bound and nobody is behind on; holds the command back when that is not enough. */
  settle(): void {
    if (!this.#keepsEnds) return;
    const half = this.#maxBytes / 2;
    const needed = this.#neededFrom();
    const droppable = (segment: Segment) => {
      const end = segment.offset + segment.bytes.length;
      return segment.offset >= half && end <= this.end - half && end <= needed;
    };
    for (let at = this.segments.findIndex(droppable); at >= 0; at = this.segments.findIndex(droppable)) {
      const [dropped] = this.segments.splice(at, 1);
      if (dropped === undefined) break;
      this.truncated = true;
      this.gap = { from: this.gap?.from ?? dropped.offset, to: dropped.offset + dropped.bytes.length };
    }
    const held = needed !== Number.POSITIVE_INFINITY && this.end - needed > half;
    if (held === this.#held) return;
    this.#held = held;
    this.onHold(held);
  }

  /** The first byte that somebody who holds the command back has not read. */
  #neededFrom(): number {
    if (this.#holdMs === undefined) return Number.POSITIVE_INFINITY;
    const now = Date.now();
    const moving = [...this.followers].filter(({ movedAt }) => now - movedAt < STALLED_MS);
    if (moving.length > 0) return Math.min(...moving.map(({ at }) => at));
    return now - this.#unfollowedSince < this.#holdMs ? 0 : Number.POSITIVE_INFINITY;
  }

  follow(at: number): Follower {
    const follower = { at, movedAt: Date.now() };
    this.followers.add(follower);
    return follower;
  }

  moved(follower: Follower, at: number): void {
    if (at !== follower.at) follower.movedAt = Date.now();
    follower.at = at;
    this.settle();
  }

  leave(follower: Follower): void {
    this.followers.delete(follower);
    if (this.followers.size === 0) this.#unfollowedSince = Date.now();
    this.settle();
  }

  /** What is kept from `offset` on, at most to where it stops being kept. */
  read(offset: number): { gap?: { from: number; to: number }; bytes: Buffer; next: number } {
    const at = this.segments.findIndex((segment) => segment.offset + segment.bytes.length > offset);
    const first = this.segments[at];
    if (first === undefined) return { bytes: Buffer.alloc(0), next: offset };
    if (first.offset > offset)
      return { gap: { from: offset, to: first.offset }, bytes: Buffer.alloc(0), next: first.offset };
    const pieces = [first.bytes.subarray(offset - first.offset)];
    let end = first.offset + first.bytes.length;
    for (const segment of this.segments.slice(at + 1, at + 17)) {
      if (segment.offset !== end) break;
      pieces.push(segment.bytes);
      end += segment.bytes.length;
    }
    return { bytes: Buffer.concat(pieces), next: end };
  }

  /** A frame at most `bytes` before the end. */
  tail(bytes: number): number {
    return this.segments.find(({ offset }) => offset >= this.end - bytes)?.offset ?? this.end;
  }

  wake(): void {
    for (const wake of this.#waiters) wake();
    this.#waiters.clear();
  }

  /** At the next change, or after `ms`. */
  async changed(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#waiters.add(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}
