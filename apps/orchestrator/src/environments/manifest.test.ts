import { AppError, type CreateEnvironment } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { confidedOf, shellVariables } from './manifest.ts';

const base64 = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64');
const given = (manifest: unknown, secrets?: Record<string, string>): CreateEnvironment => ({
  task_id: 't',
  ...(manifest === undefined ? {} : { manifest_inline: base64(manifest) }),
  ...(secrets === undefined ? {} : { secrets }),
});

function refusal(request: CreateEnvironment): AppError {
  try {
    confidedOf(request);
  } catch (error) {
    if (error instanceof AppError) return error;
  }
  throw new Error('it was not refused');
}

const machine = { env: { A: { value: 'a' }, B: { secret: 'token' } } };

describe('a manifest', () => {
  it('is kept as it came, whatever it says besides', () => {
    const text = ' {"services": {}, "machine": {"env": null}, "other": 1.0}\n';
    expect(confidedOf(given(text))).toEqual({ manifest: text });
    expect(confidedOf(given({ machine: {} }))).toEqual({ manifest: '{"machine":{}}' });
    expect(confidedOf({ task_id: 't', manifest_inline: base64(text).replace(/.{8}/g, '$&\r\n') })).toEqual({
      manifest: text,
    });
  });

  it('need not be there, nor need secrets', () => {
    expect(confidedOf({ task_id: 't' })).toBeUndefined();
    expect(confidedOf({ task_id: 't', manifest_inline: '', secrets: {} })).toBeUndefined();
    expect(confidedOf(given(undefined, { a: '' }))).toEqual({ secrets: { a: '' } });
  });

  it.each(['%%%', 'eA', 'eA==x', base64('x').replace('=', ''), Buffer.of(0xff, 0xfe, 0xff).toString('base64')])(
    'that is not base64 of UTF-8 is refused: %s',
    (text) => {
      const { code, message, details } = refusal({ task_id: 't', manifest_inline: text });
      expect(message).toMatch(/^decode manifest_inline: /);
      expect({ code, details }).toEqual({ code: 'invalid_argument', details: { field: 'manifest_inline' } });
    },
  );

  it.each([
    'not json',
    '[]',
    '"x"',
    { machine: { env: [] } },
    { machine: { env: { A: 'x' } } },
    { machine: { env: { A: { value: 1 } } } },
    { machine: { env: { 'A;reboot': { value: '' } } } },
    { machine: { env: { A: { value: '\0' } } } },
    { services: { web: { env: { A: { secret: 7 } } } } },
  ])('of another shape is refused by the check of secrets: %j', (manifest) => {
    const { code, message, details } = refusal(given(manifest));
    expect(message).toMatch(/^secrets validation failed: /);
    expect({ code, details }).toEqual({ code: 'invalid_argument', details: { field: 'manifest_inline' } });
  });
});

describe('secrets', () => {
  it('that a manifest refers to must be there, and may be empty', () => {
    const services = { web: { image: 'x', env: { C: { secret: 'other' } } } };
    expect(refusal(given({ machine, services }, { other: '' })).message).toBe(
      'secrets validation failed: machine.env.B refers to the secret token, which is not given',
    );
    expect(refusal(given({ machine, services }, { token: 'x' })).message).toMatch(/services\.web\.env\.C refers to/);
    expect(refusal(given({ machine: { env: { A: { secret: 'toString' } } } })).details).toEqual({ field: 'secrets' });
    const secrets = { token: '', other: '', unused: 'x' };
    expect(confidedOf(given({ machine, services }, secrets))?.secrets).toEqual(secrets);
  });

  it.each([
    [Object.fromEntries(Array.from({ length: 257 }, (_, index) => [`s${index}`, ''])), /at most 256/],
    [{ ['n'.repeat(257)]: '' }, /over 256 characters/],
    [{ s: 'é'.repeat(32_769) }, /over 64 KiB/],
    [Object.fromEntries(Array.from({ length: 17 }, (_, index) => [`s${index}`, 'x'.repeat(65_000)])), /over 1 MiB/],
  ])('are bounded', (secrets, problem) => {
    const { message } = refusal(given(undefined, secrets as Record<string, string>));
    expect(message).toMatch(/^secrets validation failed: /);
    expect(message).toMatch(problem);
    expect(message.length).toBeLessThan(300);
  });

  it('of the largest size are taken', () => {
    const secrets = { ['n'.repeat(256)]: 'x'.repeat(65_536) };
    expect(confidedOf(given(undefined, secrets))).toEqual({ secrets });
  });
});

it('variables for a shell are sorted and quoted', () => {
  const env = { B: { secret: 's' }, A1: { value: "it's" }, A: { value: 'x\n$(id)' }, N: {}, E: { secret: 'e' } };
  const manifest = JSON.stringify({ machine: { env } });
  expect(shellVariables({ manifest, secrets: { s: "'", e: '' } })).toBe(
    "A='x\n$(id)'\nA1='it'\\''s'\nB=''\\'''\nE=''\nN=''\n",
  );
  expect(shellVariables({})).toBe('');
});
