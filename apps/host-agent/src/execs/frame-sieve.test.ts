import { encodeFrame, FRAME_HEADER_BYTES, type Frame, FrameError, FrameParser, frameType } from '@fuse/contract';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameSieve } from './frame-sieve.ts';

const exit = {
  exit_code: 3,
  timed_out: false,
  oom_killed: false,
  stdout_bytes: 0,
  stderr_bytes: 0,
  duration_ms: 5,
};
const exitFrame = encodeFrame(frameType.exit, Buffer.from(JSON.stringify(exit)));

const output = fc.record({
  type: fc.constantFrom(frameType.stdout, frameType.stderr),
  payload: fc.uint8Array({ maxLength: 300 }),
});
/** A stream and where it is cut into chunks. */
const streams = fc.record({
  frames: fc.array(output, { maxLength: 20 }),
  cuts: fc.array(fc.nat(), { maxLength: 30 }),
  limitBytes: fc.integer({ min: 1, max: 4_000 }),
});

function encode(frames: readonly Frame[]): Buffer {
  return Buffer.concat(frames.map(({ type, payload }) => encodeFrame(type, payload)));
}

function* chunks(bytes: Buffer, cuts: number[]): Generator<Buffer> {
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  let at = 0;
  for (const end of ends) {
    yield bytes.subarray(at, end);
    at = end;
  }
}

function sieve(limitBytes: number): FrameSieve {
  return new FrameSieve({ limitBytes, guestOffset: 0, logBytes: 0, truncated: false });
}

const streamOf = (frames: Iterable<Frame>, type: number): Buffer =>
  Buffer.concat([...frames].filter((frame) => frame.type === type).map((frame) => frame.payload));

describe('FrameSieve', () => {
  it('keeps every byte of a stream within its bound, however it is cut', () => {
    fc.assert(
      fc.property(streams, ({ frames, cuts }) => {
        const bytes = Buffer.concat([encode(frames), exitFrame]);
        const subject = sieve(1_000_000);
        const kept: Uint8Array[] = [];
        let seen: unknown;
        for (const chunk of chunks(bytes, cuts)) {
          const { keep, exit: ended } = subject.push(chunk);
          kept.push(...keep);
          seen ??= ended;
        }
        expect(Buffer.concat(kept).equals(bytes)).toBe(true);
        expect(seen).toEqual(exit);
        expect(subject.guestOffset).toBe(bytes.length);
        expect(subject.truncated).toBe(false);
      }),
    );
  });

  it('keeps a prefix of whole frames beyond its bound, the same however it is cut, and always the exit', () => {
    fc.assert(
      fc.property(streams, ({ frames, cuts, limitBytes }) => {
        const bytes = Buffer.concat([encode(frames), exitFrame]);
        const keptOf = (pieces: Iterable<Buffer>) => {
          const subject = sieve(limitBytes);
          const kept = [...pieces].flatMap((piece) => subject.push(piece).keep);
          expect(subject.guestOffset).toBe(bytes.length);
          return { kept: Buffer.concat(kept), truncated: subject.truncated };
        };
        const { kept, truncated } = keptOf(chunks(bytes, cuts));
        expect(kept).toEqual(keptOf([bytes]).kept);
        expect(kept.length).toBeLessThanOrEqual(limitBytes + exitFrame.length);
        const parser = new FrameParser();
        const parsed = [...parser.push(kept)];
        expect(parser.pendingBytes).toBe(0);
        expect(parsed.at(-1)?.type).toBe(frameType.exit);
        for (const type of [frameType.stdout, frameType.stderr]) {
          const whole = streamOf(frames, type);
          const got = streamOf(parsed, type);
          expect(whole.subarray(0, got.length).equals(got)).toBe(true);
          if (!truncated) expect(got.length).toBe(whole.length);
        }
      }),
    );
  });

  it('uses all of its bound', () => {
    const subject = sieve(100);
    const { keep } = subject.push(encodeFrame(frameType.stdout, Buffer.alloc(5_000, 'x')));
    expect(Buffer.concat(keep).length).toBe(100);
    expect(subject.truncated).toBe(true);
    expect(subject.guestOffset).toBe(5_000 + FRAME_HEADER_BYTES);
    expect(subject.push(encodeFrame(frameType.stderr, Buffer.from('y'))).keep).toEqual([]);
  });

  it('goes on at a frame border after a cut, without gap or repeat', () => {
    fc.assert(
      fc.property(streams, fc.nat(), ({ frames, cuts }, where) => {
        const bytes = Buffer.concat([encode(frames), exitFrame]);
        const subject = sieve(1_000_000);
        const kept: Uint8Array[] = [];
        for (const chunk of chunks(bytes.subarray(0, where % bytes.length), cuts))
          kept.push(...subject.push(chunk).keep);
        const from = subject.guestOffset;
        subject.restart(from);
        kept.push(...subject.push(bytes.subarray(from)).keep);
        expect(Buffer.concat(kept).equals(bytes)).toBe(true);
      }),
    );
  });

  it('refuses what a guest has no business to send', () => {
    const refused = [
      encodeFrame(frameType.stdin, Buffer.from('x')),
      encodeFrame(frameType.spec, Buffer.from('{}')),
      encodeFrame(99, Buffer.alloc(0)),
      encodeFrame(frameType.exit, Buffer.from('{"exit_code":')),
      encodeFrame(frameType.exit, Buffer.from(JSON.stringify({ ...exit, exit_code: 256 }))),
      encodeFrame(frameType.exit, Buffer.from(JSON.stringify({ ...exit, stdout_bytes: -1 }))),
      encodeFrame(frameType.exit, Buffer.alloc(5_000, ' ')),
      Buffer.from([frameType.stdout, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
    ];
    for (const bytes of refused) expect(() => sieve(1_000).push(bytes), bytes.toString('latin1')).toThrow(FrameError);
  });

  it('takes any bytes at all without another error or more memory than one frame', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 20 }), (pieces) => {
        const subject = sieve(1_000);
        try {
          for (const piece of pieces) subject.push(piece);
        } catch (error) {
          expect(error).toBeInstanceOf(FrameError);
        }
      }),
    );
  });
});
