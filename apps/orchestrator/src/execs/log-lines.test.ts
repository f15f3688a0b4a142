import { ExecLogLine } from '@fuse/contract';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LogEvent } from './follow-log.ts';
import { LogLines } from './log-lines.ts';

type Piece = { stream: 'stdout' | 'stderr'; bytes: Uint8Array };

/** A log of these pieces, as events. */
function eventsOf(pieces: readonly Piece[]): LogEvent[] {
  let offset = 0;
  const data = pieces.map(({ stream, bytes }): LogEvent => {
    offset += 8 + bytes.length;
    return { kind: 'data', stream, payload: bytes, offset };
  });
  const exit = {
    exit_code: 0,
    timed_out: false,
    oom_killed: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
    duration_ms: 1,
  };
  return [...data, { kind: 'exit', exit, payload: new Uint8Array(), offset: offset + 8 }];
}

const textOf = (lines: readonly ExecLogLine[], stream: string): string =>
  lines.map((line) => ('stream' in line && line.stream === stream ? line.data : '')).join('');
const bytesOf = (pieces: readonly Piece[], stream: string): Buffer =>
  Buffer.concat(pieces.filter((piece) => piece.stream === stream).map(({ bytes }) => bytes));
const decoded = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
const tell = (maker: LogLines, events: readonly LogEvent[]) => events.flatMap((event) => maker.push(event));

const streamName = fc.constantFrom('stdout' as const, 'stderr' as const);
/** Bytes of both streams, cut into frames anywhere. */
const cutAnywhere = (bytes: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Piece[]> =>
  fc
    .tuple(
      bytes,
      bytes,
      fc.array(fc.tuple(streamName, fc.integer({ min: 1, max: 9 })), { minLength: 1, maxLength: 60 }),
    )
    .map(([stdout, stderr, cuts]) => {
      const rest = { stdout, stderr };
      const pieces: Piece[] = [];
      const take = (stream: 'stdout' | 'stderr', size: number) => {
        if (rest[stream].length > 0) pieces.push({ stream, bytes: rest[stream].slice(0, size) });
        rest[stream] = rest[stream].slice(size);
      };
      for (const [stream, size] of cuts) take(stream, size);
      take('stdout', stdout.length);
      take('stderr', stderr.length);
      return pieces;
    });
const text = fc
  .array(fc.constantFrom('a', 'é', '漢', '🎉', '\n', '\uFEFF', '\u0000'), { maxLength: 30 })
  .map((characters) => new Uint8Array(Buffer.from(characters.join(''))));
const anyBytes = fc.oneof(fc.uint8Array({ maxLength: 40 }), text);

describe('lines of a log', () => {
  it('are the text of each stream, however its bytes were cut into frames', () => {
    fc.assert(
      fc.property(cutAnywhere(anyBytes), (pieces) => {
        const lines = tell(new LogLines('utf8', false), eventsOf(pieces));
        for (const stream of ['stdout', 'stderr']) expect(textOf(lines, stream)).toBe(decoded(bytesOf(pieces, stream)));
        for (const line of lines) ExecLogLine.parse(line);
        const offsets = lines.map((line) => ('offset' in line ? line.offset : 0));
        expect(offsets).toEqual(offsets.toSorted((a, b) => a - b));
      }),
      { numRuns: 500 },
    );
  });

  it('go on at the offset of any line without gap or repeat, and no character is ever split', () => {
    fc.assert(
      fc.property(cutAnywhere(text), fc.array(fc.nat(40), { maxLength: 6 }), (pieces, cuts) => {
        const events = eventsOf(pieces);
        const told: ExecLogLine[] = [];
        let from = 0;
        // Each connection delivers some lines and is cut.
        for (const cut of [...cuts, Number.POSITIVE_INFINITY]) {
          const rest = events.filter(({ offset }) => offset > from);
          const delivered = tell(new LogLines('utf8', from > 0), rest).slice(0, cut);
          told.push(...delivered);
          const last = delivered.at(-1);
          if (last !== undefined && 'offset' in last) from = last.offset;
        }
        for (const stream of ['stdout', 'stderr']) expect(textOf(told, stream)).toBe(decoded(bytesOf(pieces, stream)));
        expect(JSON.stringify(told)).not.toContain('\uFFFD');
      }),
      { numRuns: 1_000 },
    );
  });

  it('carry exact bytes as base64, a line a frame', () => {
    fc.assert(
      fc.property(cutAnywhere(fc.uint8Array({ maxLength: 40 })), (pieces) => {
        const lines = tell(new LogLines('base64', false), eventsOf(pieces));
        expect(lines).toHaveLength(pieces.length + 1);
        for (const stream of ['stdout', 'stderr']) {
          const parts = lines.map((line) =>
            'stream' in line && line.stream === stream ? Buffer.from(line.data, 'base64') : Buffer.alloc(0),
          );
          expect(Buffer.concat(parts)).toEqual(bytesOf(pieces, stream));
        }
      }),
    );
  });

  it('tell what stands open before a gap and before the end as U+FFFD, and the rest of a character behind a gap not at all', () => {
    const [first, second] = ['漢', '字'].map((character) => Buffer.from(character));
    const maker = new LogLines('utf8', false);
    const half: LogEvent = {
      kind: 'data',
      stream: 'stdout',
      payload: first?.subarray(0, 2) ?? Buffer.alloc(0),
      offset: 10,
    };
    expect(maker.push(half)).toEqual([]);
    expect(maker.push({ kind: 'gap', from: 10, to: 50, offset: 50 })).toEqual([
      { stream: 'stdout', data: '\uFFFD', encoding: 'utf8', offset: 10 },
      { gap: { from: 10, to: 50 }, offset: 50 },
    ]);
    const rest: LogEvent = {
      kind: 'data',
      stream: 'stdout',
      payload: Buffer.concat([second?.subarray(1) ?? Buffer.alloc(0), Buffer.from('!')]),
      offset: 60,
    };
    expect(maker.push(rest)).toEqual([{ stream: 'stdout', data: '!', encoding: 'utf8', offset: 60 }]);
    expect(maker.push({ kind: 'lost', error: 'it died', offset: 60 })).toEqual([{ lost: 'it died', offset: 60 }]);
  });

  it('wait for the end of a character only within a bound', () => {
    const maker = new LogLines('utf8', false);
    expect(maker.push({ kind: 'data', stream: 'stdout', payload: Buffer.from([0xe6]), offset: 9 })).toEqual([]);
    let told = 0;
    for (let n = 1; n <= 40; n += 1)
      told += maker.push({ kind: 'data', stream: 'stderr', payload: Buffer.alloc(65_536, 'x'), offset: n }).length;
    expect(told).toBeGreaterThan(20);
  });
});
