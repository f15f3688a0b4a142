import { AppError } from '@fuse/contract';
import { systemClock } from '@fuse/runtime';
import { describe, expect, it } from 'vitest';
import { startTestOrchestrator, TEST_TOKEN } from '../test-orchestrator.ts';
import { LoginAttempts, networkOf } from './login-attempts.ts';

describe('failed logins', () => {
  it('are limited for each address and for all together, and come back with time', () => {
    let now = 0;
    const limits = { ofAddress: { burst: 2, perSecond: 0.5 }, ofAll: { burst: 5, perSecond: 1 } };
    const attempts = new LoginAttempts({ ...systemClock, monotonic: () => now }, limits);
    const fails = (address: string): number | undefined => {
      try {
        attempts.begin(address);
        return undefined;
      } catch (error) {
        expect(error).toBeInstanceOf(AppError);
        return (error as AppError).retryAfterSeconds; // looked at above
      }
    };
    expect([fails('192.0.2.1'), fails('192.0.2.1'), fails('::ffff:192.0.2.1')]).toEqual([undefined, undefined, 2]);
    expect([fails('192.0.2.2'), fails('2001:db8::1'), fails('2001:db8::2')]).toEqual(Array(3).fill(undefined));
    expect(fails('192.0.2.3')).toBe(1); // all five are used
    now += 2_000;
    expect(fails('192.0.2.1')).toBeUndefined();
    expect(fails('192.0.2.1')).toBe(2);
  });

  it('count for nothing when the token was right', () => {
    const limits = { ofAddress: { burst: 1, perSecond: 0.001 }, ofAll: { burst: 1, perSecond: 0.001 } };
    const attempts = new LoginAttempts(systemClock, limits);
    for (let round = 0; round < 10; round += 1) attempts.begin('192.0.2.1').succeeded();
    attempts.begin('192.0.2.1');
    expect(() => attempts.begin('192.0.2.1')).toThrow(/too many failed logins from this address/);
    expect(() => attempts.begin('192.0.2.2')).toThrow(/^too many failed logins$/);
  });

  it('of one IPv6 network count together', () => {
    expect(networkOf('2001:db8:0:1::5')).toBe('2001:db8:0:1');
    expect(networkOf('2001:0db8:0000:0001:ffff:1:2:3')).toBe('2001:db8:0:1');
    expect(networkOf('fe80::1%eth0')).toBe('fe80:0:0:0');
    expect(networkOf('::1')).toBe('0:0:0:0');
  });

  it('are refused with 429 and Retry-After over HTTP, many at once too, while the token itself works on', async () => {
    await using system = await startTestOrchestrator('postgres');
    const login = (token: string) => system.call('POST', '/login', { token }, { headers: { authorization: '' } });
    const answers = await Promise.all(Array.from({ length: 30 }, (_, at) => login(`guess-${at}`)));
    expect(answers.filter(({ status }) => status === 401).length).toBeLessThanOrEqual(11);
    const refused = answers.filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThanOrEqual(19);
    expect(refused[0]?.headers.get('retry-after')).toMatch(/^[1-6]$/);
    expect(refused[0]?.body.error).toMatchObject({ code: 'quota_exceeded', details: { quota: 'login_attempts' } });
    expect((await login(TEST_TOKEN)).status).toBe(429);
    expect((await system.call('GET', '/v1/tenants')).status).toBe(200);
    expect((await system.call('GET', '/metrics')).body).toMatch(
      /orchestrator_quota_refusals_total\{quota="login_attempts"\} \d/,
    );
  });
});
