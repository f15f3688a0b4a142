/** For tests: frame streams, and where they are cut. */
import { encodeFrame, frameType } from '@fuse/contract';
import fc from 'fast-check';

export const exit = {
  exit_code: 3,
  timed_out: false,
  oom_killed: false,
  stdout_bytes: 0,
  stderr_bytes: 0,
  duration_ms: 5,
};
export const exitFrame: Uint8Array = encodeFrame(frameType.exit, Buffer.from(JSON.stringify(exit)));

const frame = fc
  .record({
    type: fc.constantFrom(frameType.stdout, frameType.stderr),
    payload: fc.uint8Array({ maxLength: 300 }),
  })
  .map(({ type, payload }) => encodeFrame(type, payload));

/** Without the exit frame, and where the stream is cut into chunks. */
export const frameStreams = fc.record({
  frames: fc.array(frame, { maxLength: 40 }),
  cuts: fc.array(fc.nat(), { maxLength: 30 }),
});

export function* cutInto(bytes: Buffer, cuts: readonly number[]): Generator<Buffer> {
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  let at = 0;
  for (const end of ends) {
    yield bytes.subarray(at, end);
    at = end;
  }
}
