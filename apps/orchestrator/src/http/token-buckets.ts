/** A bucket for each key that holds `burst` tokens and gets `perSecond` back, in this process. */
import type { Clock } from '@fuse/runtime';

export interface BucketSize {
  perSecond: number;
  burst: number;
}

export interface Taken {
  /** There was none left, and none was taken. */
  isOver: boolean;
  /** What is left. */
  tokens: number;
  /** Until there is one. */
  retryAfterSeconds: number;
}

interface Bucket {
  tokens: number;
  /** Of the clock, in ms. */
  at: number;
}

/** Full ones are forgotten beyond so many: they are as new. */
const MANY_BUCKETS = 10_000;

export class TokenBuckets {
  readonly #config: BucketSize;
  readonly #clock: Clock;
  readonly #buckets = new Map<string, Bucket>();

  constructor(config: BucketSize, clock: Clock) {
    this.#config = config;
    this.#clock = clock;
  }

  take(key: string): Taken {
    const bucket = this.#filled(key);
    const isOver = bucket.tokens < 1;
    if (!isOver) bucket.tokens -= 1;
    const retryAfterSeconds = Math.max(1, Math.ceil((1 - bucket.tokens) / this.#config.perSecond));
    return { isOver, tokens: bucket.tokens, retryAfterSeconds };
  }

  /** One that was taken counts for nothing. */
  giveBack(key: string): void {
    const bucket = this.#filled(key);
    bucket.tokens = Math.min(this.#config.burst, bucket.tokens + 1);
  }

  /** Those that are remembered. */
  get size(): number {
    return this.#buckets.size;
  }

  #filled(key: string): Bucket {
    const now = this.#clock.monotonic();
    const bucket = this.#buckets.get(key);
    if (bucket !== undefined) {
      bucket.tokens = this.#tokensAt(bucket, now);
      bucket.at = now;
      return bucket;
    }
    if (this.#buckets.size >= MANY_BUCKETS) this.#forgetFull(now);
    const made = { tokens: this.#config.burst, at: now };
    this.#buckets.set(key, made);
    return made;
  }

  #tokensAt({ tokens, at }: Bucket, now: number): number {
    const { burst, perSecond } = this.#config;
    return Math.min(burst, tokens + ((now - at) / 1_000) * perSecond);
  }

  #forgetFull(now: number): void {
    for (const [key, bucket] of this.#buckets)
      if (this.#tokensAt(bucket, now) >= this.#config.burst) this.#buckets.delete(key);
  }
}
