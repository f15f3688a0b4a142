/**
 * Requests a second of each credential: a bucket that holds `burst` of them and gets `perSecond` back, in this process. Behind several replicas a
 * credential has so many of each. Every request counts, upgrades too, once it is known whose it is; the operational routes never do.
 */
import { AppError } from '@fuse/contract';
import type { Clock } from '@fuse/runtime';
import type { RateStanding } from '../quotas/quotas.ts';
import type { Caller } from './authentication.ts';
import type { App } from './http-server.ts';
import { setRateLimit } from './rate-limit-headers.ts';
import './route-config.ts';

export interface RateLimitConfig {
  perSecond: number;
  burst: number;
}

interface Bucket {
  tokens: number;
  /** Of the clock, in ms. */
  at: number;
}

/** Full ones are forgotten beyond so many: they are as new. */
const MANY_BUCKETS = 10_000;
const QUOTA = 'requests_per_second';

export class RateLimiter {
  readonly #config: RateLimitConfig;
  readonly #clock: Clock;
  readonly #buckets = new Map<string, Bucket>();

  constructor(config: RateLimitConfig, clock: Clock) {
    this.#config = config;
    this.#clock = clock;
  }

  /** One request of this caller; `told` hears how its rate stands, also before the 429. */
  take(caller: Caller, told: (rate: RateStanding) => void = () => {}): void {
    const { perSecond, burst } = this.#config;
    const bucket = this.#filled(caller.proof ?? caller.actorKind);
    const isOver = bucket.tokens < 1;
    if (!isOver) bucket.tokens -= 1;
    const retryAfterSeconds = Math.max(1, Math.ceil((1 - bucket.tokens) / perSecond));
    told({
      name: QUOTA,
      limit: burst,
      windowSeconds: Math.max(1, Math.ceil(burst / perSecond)),
      remaining: Math.floor(bucket.tokens),
      resetSeconds: isOver ? retryAfterSeconds : Math.ceil((burst - bucket.tokens) / perSecond),
    });
    if (!isOver) return;
    throw new AppError(
      'quota_exceeded',
      `${QUOTA}: this credential has ${perSecond} requests a second, ${burst} at once`,
      {
        details: { quota: QUOTA, limit: String(perSecond), used: String(perSecond) },
        hint: 'Send fewer requests; the RateLimit headers say how many are left.',
        retryAfterSeconds,
      },
    );
  }

  /** Buckets that are remembered. */
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

/** After the authentication. */
export function installRateLimit(app: App, limiter: RateLimiter): void {
  app.addHook('onRequest', async (request, reply) => {
    const { auth, probe } = request.routeOptions.config;
    if (request.is404 || probe === true || auth === 'none') return;
    limiter.take(request.caller, (rate) => setRateLimit(reply, rate));
  });
}
