import { open, readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { FuseApiError } from '@fuse/sdk';
import { describe, expect, test } from 'vitest';
import { errorText, reasonOf } from './error-text.ts';

describe('errors as people read them', () => {
  test('one of this machine’s system is a sentence, without a trace', async () => {
    const missing = await readFile('/nowhere/at all').catch((error: unknown) => error);
    expect(errorText(missing)).toBe('/nowhere/at all: no such file or directory\n');
    const directory = await open('/tmp', 'w').catch((error: unknown) => error);
    expect(reasonOf(directory)).toBe('/tmp: illegal operation on a directory');
  });

  test('a port that is taken is said to be', async () => {
    const first = createServer();
    await new Promise<void>((resolve) => first.listen(0, '127.0.0.1', resolve));
    const second = createServer();
    const error = await new Promise((resolve) => second.once('error', resolve).listen(first.address()));
    await new Promise((resolve) => first.close(resolve));
    expect(reasonOf(error)).toBe('address already in use');
  });

  test('hints that speak of the API are told in the words of the command line', () => {
    const fields = {
      status: 409,
      code: 'conflict',
      reason: 'old_text is there twice',
      hint: 'set "replace_all": true',
    };
    expect(errorText(new FuseApiError({ ...fields, details: { reason: 'ambiguous' } }))).toBe(
      'conflict: old_text is there twice\nhint: give more of the surrounding text, or --all\n',
    );
    expect(errorText(new FuseApiError({ ...fields, details: { reason: 'something else' } }))).toContain(
      '"replace_all"',
    );
    const paused = { ...fields, details: { state: 'paused' } };
    expect(errorText(new FuseApiError(paused))).toContain('hint: `fuse environment resume`');
    const anonymous = { status: 401, code: 'unauthorized', reason: 'missing or malformed credentials', hint: 'Send …' };
    expect(errorText(new FuseApiError(anonymous))).toContain('hint: set FUSE_TOKEN beside FUSE_URL');
    const missing = { status: 404, code: 'not_found', reason: 'no file', details: { path: '/x' }, hint: 'POST …' };
    expect(errorText(new FuseApiError(missing))).toContain('hint: `fuse environment ls`');
  });

  test('a name that would move the cursor is shown, not obeyed', () => {
    const error = new FuseApiError({ status: 404, code: 'not_found', reason: 'no "\x1b[2Jx"' });
    expect(errorText(error)).toBe('not found: no "\\u{1b}[2Jx"\n');
  });
});
