/**
 * Requests a second of each credential, by this process. Behind several replicas a credential has so many of each. Every request counts, upgrades too, once it is known whose it is; the operational routes never do.
 */
import { AppError } from '@fuse/contract';
import type { Clock } from '@fuse/runtime';
import type { RateStanding } from '../quotas/quotas.ts';
import type { Caller } from './authentication.ts';
import type { App } from './http-server.ts';
import { setRateLimit } from './rate-limit-headers.ts';
import './route-config.ts';
import { type BucketSize, TokenBuckets } from './token-buckets.ts';

export type RateLimitConfig = BucketSize;

const QUOTA = 'requests_per_second';

export class RateLimiter {
  readonly #config: RateLimitConfig;
  readonly #buckets: TokenBuckets;

  constructor(config: RateLimitConfig, clock: Clock) {
    this.#config = config;
    this.#buckets = new TokenBuckets(config, clock);
  }

  /** One request of this caller; `told` hears how its rate stands, also before the 429. */
  take(caller: Caller, told: (rate: RateStanding) => void = () => {}): void {
    const { perSecond, burst } = this.#config;
    const { isOver, tokens, retryAfterSeconds } = this.#buckets.take(caller.proof ?? caller.actorKind);
    told({
      name: QUOTA,
      limit: burst,
      windowSeconds: Math.max(1, Math.ceil(burst / perSecond)),
      remaining: Math.floor(tokens),
      resetSeconds: isOver ? retryAfterSeconds : Math.ceil((burst - tokens) / perSecond),
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
}

/** After the authentication. */
export function installRateLimit(app: App, limiter: RateLimiter): void {
  app.addHook('onRequest', async (request, reply) => {
    const { auth, probe } = request.routeOptions.config;
    if (request.is404 || probe === true || auth === 'none') return;
    limiter.take(request.caller, (rate) => setRateLimit(reply, rate));
  });
}
