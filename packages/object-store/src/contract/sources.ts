/** Sources of puts that do not end well. */
import { Readable } from 'node:stream';
import { patternBlocks, patternStream } from '../pattern.fixture.ts';

export function stalledStream(sizeBytes: number): { source: Readable; stalled: Promise<void> } {
  const blocks = patternBlocks(sizeBytes);
  let tell = () => {};
  const stalled = new Promise<void>((resolve) => {
    tell = resolve;
  });
  const source = new Readable({
    read() {
      const { value, done } = blocks.next();
      if (done === true) tell();
      else this.push(value);
    },
  });
  return { source, stalled };
}

export function failingStream(sizeBytes: number, error: Error): Readable {
  return Readable.from(
    (async function* () {
      yield* patternStream(sizeBytes);
      throw error;
    })(),
    { objectMode: false },
  );
}
