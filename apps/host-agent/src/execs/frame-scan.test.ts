import { encodeFrame, FRAME_HEADER_BYTES, FrameError, frameType } from '@fuse/contract';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameScan } from './frame-scan.ts';
import { cutInto, exit, exitFrame, frameStreams } from './test-frames.ts';

describe('FrameScan', () => {
  it('finds ends of frames however the stream is cut, and the exit', () => {
    fc.assert(
      fc.property(frameStreams, fc.integer({ min: 1, max: 500 }), ({ frames, cuts }, grain) => {
        const ends = new Set<number>();
        let at = 0;
        for (const frame of [...frames, exitFrame]) {
          at += frame.length;
          ends.add(at);
        }
        const scan = new FrameScan(grain);
        let base = 0;
        let last = 0;
        let seen: unknown;
        for (const chunk of cutInto(Buffer.concat([...frames, exitFrame]), cuts)) {
          const { borders, exit: ended } = scan.push(chunk);
          for (const border of borders) {
            expect(ends).toContain(base + border);
            expect(base + border).toBeGreaterThan(last);
            last = base + border;
          }
          const whole = [...ends].filter((end) => end <= base + chunk.length).at(-1) ?? 0;
          expect(last).toBe(whole);
          base += chunk.length;
          seen ??= ended;
        }
        expect(last).toBe(at);
        expect(seen).toEqual(exit);
      }),
    );
  });

  it('refuses what a guest has no business to send', () => {
    const refused = [
      encodeFrame(frameType.stdin, Buffer.from('x')),
      encodeFrame(frameType.gap, Buffer.from('{}')),
      encodeFrame(99, Buffer.alloc(0)),
      encodeFrame(frameType.exit, Buffer.from('{"exit_code":')),
      encodeFrame(frameType.exit, Buffer.from(JSON.stringify({ ...exit, exit_code: 256 }))),
      encodeFrame(frameType.exit, Buffer.alloc(5_000, ' ')),
      Buffer.from([frameType.stdout, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
    ];
    for (const bytes of refused)
      for (const cut of [0, 3, FRAME_HEADER_BYTES]) {
        const scan = new FrameScan(100);
        expect(() => {
          scan.push(bytes.subarray(0, cut));
          scan.push(bytes.subarray(cut));
        }, bytes.toString('latin1')).toThrow(FrameError);
      }
  });

  it('takes any bytes at all without another error', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 20 }), (pieces) => {
        const scan = new FrameScan(50);
        try {
          for (const piece of pieces) scan.push(piece);
        } catch (error) {
          expect(error).toBeInstanceOf(FrameError);
        }
      }),
    );
  });
});
