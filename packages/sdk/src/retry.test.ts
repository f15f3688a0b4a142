import { describe, expect, it } from 'vitest';
import { FuseApiError, FuseConnectionError, FuseTimeoutError } from './errors.ts';
import { backoffMs, MAX_RETRY_AFTER_MS, type Repeat, retryDelayMs } from './retry.ts';

const unsent = new FuseConnectionError('refused', { sent: false });
const broken = new FuseConnectionError('broke', { sent: true });
const late = new FuseTimeoutError('late', { sent: true });
const api = (status: number, code = '', retryAfterMs?: number) =>
  new FuseApiError({ status, code, reason: 'x', retryAfterMs });

const delay = (error: unknown, repeat: Repeat, attempt = 0) =>
  retryDelayMs(error, attempt, { repeat, retries: 3, random: () => 1 });

describe('retryDelayMs', () => {
  it('repeats freely after lost connections and passing refusals', () => {
    for (const error of [
      unsent,
      broken,
      api(429),
      api(502),
      api(503, 'unavailable', 0),
      api(504),
      api(429, 'quota_exceeded', 5),
    ])
      expect(delay(error, 'freely')).toBeGreaterThan(0);
  });

  it('never repeats what is final', () => {
    for (const error of [
      late,
      api(400),
      api(404),
      api(409),
      api(500),
      api(503, 'unavailable'),
      api(502, 'vm_lost'),
      api(504, 'deadline_exceeded'),
      new Error(),
    ])
      expect(delay(error, 'freely')).toBeUndefined();
  });

  it('repeats a call that must not run twice only when it never left', () => {
    expect(delay(unsent, 'if-unsent')).toBeGreaterThan(0);
    for (const error of [broken, late, api(429), api(502), api(503, 'unavailable', 1000), api(504)])
      expect(delay(error, 'if-unsent')).toBeUndefined();
    expect(delay(unsent, 'never')).toBeUndefined();
  });

  it('takes no for an answer where that is asked for', () => {
    for (const error of [unsent, broken]) expect(delay(error, 'unless-refused')).toBeGreaterThan(0);
    for (const error of [late, api(503), api(503, 'unavailable', 0)])
      expect(delay(error, 'unless-refused')).toBeUndefined();
  });

  it('gives up after the last retry', () => {
    expect(delay(broken, 'freely', 2)).toBeGreaterThan(0);
    expect(delay(broken, 'freely', 3)).toBeUndefined();
  });

  it('keeps to Retry-After, unless it asks for too long', () => {
    expect(delay(api(503, 'unavailable', 2_000), 'freely')).toBeGreaterThanOrEqual(2_000);
    expect(delay(api(503, 'unavailable', MAX_RETRY_AFTER_MS + 1), 'freely')).toBeUndefined();
  });
});

describe('backoffMs', () => {
  it('grows, stays bounded, and is jittered', () => {
    expect(backoffMs(0, () => 1)).toBe(150);
    expect(backoffMs(2, () => 1)).toBe(600);
    expect(backoffMs(50, () => 1)).toBe(5_000);
    expect(backoffMs(0, () => 0)).toBe(15);
  });
});
