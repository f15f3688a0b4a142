import { request } from 'node:http';
import { AppError } from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RateStanding } from '../quotas/quotas.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { type Caller, NOBODY } from './authentication.ts';
import { RateLimiter } from './rate-limit.ts';

describe('a credential’s bucket', () => {
  let atMs = 0;
  const clock = { now: () => atMs, monotonic: () => atMs };
  const limiter = new RateLimiter({ perSecond: 2, burst: 4 }, clock);
  const key = (id: string): Caller => ({ ...NOBODY, actorKind: 'api_key', keyId: id, proof: `api_key:${id}` });
  /** The standing, and the error of a refusal. */
  const take = (caller: Caller) => {
    let standing: RateStanding | undefined;
    let error: unknown;
    try {
      limiter.take(caller, (rate) => {
        standing = rate;
      });
    } catch (thrown) {
      error = thrown;
    }
    return { standing, error: error instanceof AppError ? error : undefined };
  };

  it('gives a burst, then so many a second, and each credential its own', () => {
    for (const remaining of [3, 2, 1, 0]) expect(take(key('a')).standing).toMatchObject({ limit: 4, remaining });
    const refused = take(key('a'));
    expect(refused.standing).toMatchObject({ remaining: 0, resetSeconds: 1, windowSeconds: 2 });
    expect(refused.error).toMatchObject({
      code: 'quota_exceeded',
      status: 429,
      retryAfterSeconds: 1,
      details: { quota: 'requests_per_second', limit: '2' },
    });
    expect(take(key('b')).error).toBeUndefined();
    atMs += 500;
    expect(take(key('a')).error).toBeUndefined();
    expect(take(key('a')).error).toBeDefined();
    atMs += 60_000;
    expect(take(key('a')).standing).toMatchObject({ remaining: 3, resetSeconds: 1 });
  });

  it('is forgotten when it is full, however many come', () => {
    for (let at = 0; at < 25_000; at += 1) {
      atMs += 1;
      expect(take(key(`one-of-many-${at}`)).error).toBeUndefined();
    }
    expect(limiter.size).toBeLessThan(12_000);
  });
});

describe('requests a second', () => {
  let test: TestOrchestrator;
  beforeAll(async () => {
    // So slow that none comes back while the test lasts.
    test = await startTestOrchestrator('postgres', { config: { rateLimit: { perSecond: 0.001, burst: 6 } } });
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());

  it('are counted for each credential, upgrades too, and said with each answer', async () => {
    const minted = await test.call('POST', '/v1/api-keys', {});
    expect(minted.headers.get('ratelimit-remaining')).toBe('5');
    const init = { headers: { authorization: `Bearer ${minted.body.key}` } };
    const asKey = (method: string, path: string) =>
      callerOf(() => test.orchestrator.url)(method, path, undefined, init);
    const first = await asKey('GET', '/v1/environments');
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'ratelimit-limit': '6',
      'ratelimit-remaining': '5',
      'ratelimit-reset': '1000',
      'ratelimit-policy': '6;w=6000;comment="requests_per_second"',
    });
    for (let left = 4; left >= 0; left -= 1)
      expect((await asKey('GET', '/v1/environments/none')).headers.get('ratelimit-remaining')).toBe(String(left));
    const refused = await asKey('GET', '/v1/environments');
    expect(refused).toMatchObject({
      status: 429,
      body: { error: { code: 'quota_exceeded', details: { quota: 'requests_per_second' } } },
    });
    expect(refused.headers.get('retry-after')).toBe('1000');
    expect(refused.headers.get('ratelimit-remaining')).toBe('0');
    const upgrade = await asUpgrade(test.orchestrator.url, minted.body.key);
    expect(upgrade).toBe(429);
    for (const path of ['/health', '/ready', '/metrics']) expect((await asKey('GET', path)).status).toBe(200);
    expect((await test.call('GET', '/v1/environments')).status).toBe(200); // somebody else
  });
});

/** The status of an upgrade that is refused. */
function asUpgrade(url: string, key: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${key}`, connection: 'Upgrade', upgrade: 'fuse-tunnel/1' };
    request(`${url}/v1/environments/none/ports/80/connect`, { headers })
      .on('response', (response) => resolve(response.resume().statusCode ?? 0))
      .on('upgrade', () => reject(new Error('granted')))
      .on('error', reject)
      .end();
  });
}
