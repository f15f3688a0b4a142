/** Moves memory in large pieces, several in flight: reads overlap with writes, and the pieces are written in their order. */
import { setImmediate } from 'node:timers/promises';

/** Small enough that what was read is still in the CPU's cache when it is written. */
export const PIECE_BYTES = 1_048_576;
const PIECES_IN_FLIGHT = 4;
/** Small pieces are moved at once (whole-io.ts); after so long the rest of this process has its turn. */
const TURN_MS = 4;

export interface Pump<Piece, Content> {
  pieces: Iterable<Piece>;
  /** `buffer`, of PIECE_BYTES, is the piece's until its write is done. */
  read: (piece: Piece, buffer: Buffer) => Promise<Content>;
  /** Called in the order of the pieces, without waiting for the writes before to end. */
  write: (piece: Piece, content: Content) => Promise<void>;
}

/** When it settles nothing is in flight any more. */
export async function pump<Piece, Content>(
  { pieces, read, write }: Pump<Piece, Content>,
  signal?: AbortSignal,
): Promise<void> {
  const iterator = pieces[Symbol.iterator]();
  let turn: Promise<void> = Promise.resolve();
  let hasFailed = false;
  let turnFromMs = performance.now();
  const work = async () => {
    const buffer = Buffer.allocUnsafeSlow(PIECE_BYTES);
    for (let next = iterator.next(); next.done !== true && !hasFailed; next = iterator.next()) {
      const before = turn;
      let pass = () => {};
      turn = new Promise((resolve) => {
        pass = resolve;
      });
      try {
        if (performance.now() - turnFromMs > TURN_MS) {
          await setImmediate();
          turnFromMs = performance.now();
        }
        signal?.throwIfAborted();
        const content = await read(next.value, buffer);
        await before;
        const writing = write(next.value, content);
        pass();
        await writing;
      } catch (error) {
        hasFailed = true;
        throw error;
      } finally {
        pass();
      }
    }
  };
  const results = await Promise.allSettled(Array.from({ length: PIECES_IN_FLIGHT }, work));
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}
