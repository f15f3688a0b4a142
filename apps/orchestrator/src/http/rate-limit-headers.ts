/** How a rate stands, as the IETF's draft has it (draft-ietf-httpapi-ratelimit-headers): RateLimit-Limit, -Remaining, -Reset and -Policy. */
import type { FastifyReply } from 'fastify';
import type { RateStanding } from '../quotas/quotas.ts';

export function rateLimitHeaders({
  name,
  limit,
  windowSeconds,
  remaining,
  resetSeconds,
}: RateStanding): Record<string, string> {
  return {
    'RateLimit-Limit': String(limit),
    'RateLimit-Remaining': String(remaining),
    'RateLimit-Reset': String(resetSeconds),
    'RateLimit-Policy': `${limit};w=${windowSeconds};comment="${name}"`,
  };
}

/** In place of what an earlier one said: the narrower rate comes later. */
export function setRateLimit(reply: FastifyReply, rate: RateStanding): void {
  reply.headers(rateLimitHeaders(rate));
}
