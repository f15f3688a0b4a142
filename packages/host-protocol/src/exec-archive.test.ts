import { AppError } from '@fuse/contract';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeExecArchiveIndex,
  EXEC_ARCHIVE_PREFIX_BYTES,
  type ExecArchiveIndex,
  encodeExecArchiveHead,
  execArchiveIndexBytes,
  MAX_ARCHIVE_INDEX_BYTES,
} from './exec-archive.ts';

const index: ExecArchiveIndex = {
  execs: [
    {
      exec: {
        id: 'build',
        state: 'exited',
        argv: ['make', '文'],
        stdin_open: false,
        created_at: '2026-01-01T00:00:00.000Z',
        log_bytes: 300,
        log_gap: { from: 100, to: 200 },
        log_truncated: true,
      },
      segments: [
        { offset: 0, at: 0, size_bytes: 100 },
        { offset: 200, at: 100, size_bytes: 100 },
      ],
    },
  ],
};

function decode(bytes: Uint8Array): ExecArchiveIndex {
  const size = execArchiveIndexBytes(bytes.subarray(0, EXEC_ARCHIVE_PREFIX_BYTES));
  return decodeExecArchiveIndex(
    bytes.subarray(EXEC_ARCHIVE_PREFIX_BYTES, EXEC_ARCHIVE_PREFIX_BYTES + size),
    bytes.length,
  );
}

const archive = (of: ExecArchiveIndex, logBytes: number) =>
  Buffer.concat([encodeExecArchiveHead(of), Buffer.alloc(logBytes)]);

describe('an archive of execs', () => {
  it('is read as it was written, also out of the middle of a buffer', () => {
    const bytes = Buffer.concat([Buffer.from('---'), archive(index, 200)]).subarray(3);
    expect(decode(bytes)).toEqual(index);
    expect(decode(archive({ execs: [] }, 0))).toEqual({ execs: [] });
  });

  it('is refused when a log reaches beyond it, or segments overlap', () => {
    expect(() => decode(archive(index, 199))).toThrow('beyond its end');
    const [entry] = index.execs;
    if (entry === undefined) throw new Error('there is one');
    const overlapping = { execs: [{ ...entry, segments: entry.segments.map((each) => ({ ...each, offset: 50 })) }] };
    expect(() => decode(archive(overlapping, 200))).toThrow('overlap');
  });

  it('is refused when it is anything else', () => {
    const whole = archive(index, 200);
    for (const size of [0, 5, 11, 12, 40]) expect(() => decode(whole.subarray(0, size))).toThrow(AppError);
    const huge = Buffer.from(whole);
    huge.writeUInt32BE(MAX_ARCHIVE_INDEX_BYTES + 1, 8);
    expect(() => decode(huge)).toThrow('too large');
    expect(() => encodeExecArchiveHead({ execs: Array(80_000).fill(index.execs[0]) })).toThrow(RangeError);
  });

  it('never fails otherwise, whatever the bytes', () => {
    const whole = archive(index, 200);
    const damages = fc.array(fc.record({ at: fc.nat(whole.length - 1), to: fc.nat(255) }), {
      minLength: 1,
      maxLength: 8,
    });
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 64 }), damages), (input) => {
        const bytes = input instanceof Uint8Array ? input : Buffer.from(whole);
        if (!(input instanceof Uint8Array)) for (const { at, to } of input) bytes[at] = to;
        try {
          decode(bytes);
        } catch (error) {
          expect(error).toBeInstanceOf(AppError);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
