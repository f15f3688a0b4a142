import { inspect } from 'node:util';
import { AppError } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { redacted, redacting } from './redaction.ts';

const secrets = { long: 'hunter2 hunter2', longer: 'hunter2 hunter2 and more', short: 'abc' };

describe('an error', () => {
  it('says nothing of a secret, not in its details, its hint or its causes', async () => {
    const cause = new TypeError('no hunter2 hunter2 here', { cause: 'hunter2 hunter2' });
    const error = new AppError('unavailable', 'exit: hunter2 hunter2 and more, abc', {
      cause,
      status: 502,
      details: { output: 'x hunter2 hunter2' },
      hint: 'not hunter2 hunter2',
      retryAfterSeconds: 5,
    });
    const clean = await redacting(secrets, () => Promise.reject(error)).catch((thrown: unknown) => thrown);
    expect(clean).toMatchObject({
      code: 'unavailable',
      status: 502,
      message: 'exit: [REDACTED], abc',
      details: { output: 'x [REDACTED]' },
      hint: 'not [REDACTED]',
      retryAfterSeconds: 5,
    });
    expect(inspect(clean, { depth: 10 })).not.toContain('hunter2');
  });

  it('that holds none is thrown as it is', () => {
    const error = new AppError('unavailable', 'abc', { cause: new Error('x') });
    expect(redacted(error, secrets)).toBe(error);
    expect(redacted(error, {})).toBe(error);
  });
});
