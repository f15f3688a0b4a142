/** Five MiB is the least that S3 takes, 10 000 the most parts: an object may have 78 GiB. */
export const PART_BYTES = 8 * 1024 * 1024;
export const MAX_PARTS = 10_000;

export interface Part {
  /** From 1. */
  number: number;
  bytes: Buffer;
  last: boolean;
}

/** Cuts a stream into parts of PART_BYTES, the last one of what is left (all of an empty stream is one empty part). Holds one part. */
export async function* partsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Part, void, undefined> {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  let number = 1;
  for await (const chunk of chunks) {
    let rest = chunk;
    while (heldBytes + rest.length > PART_BYTES) {
      const room = PART_BYTES - heldBytes;
      yield { number, bytes: Buffer.concat([...held, rest.subarray(0, room)]), last: false };
      rest = rest.subarray(room);
      held = [];
      heldBytes = 0;
      number += 1;
    }
    held.push(rest);
    heldBytes += rest.length;
  }
  yield { number, bytes: Buffer.concat(held), last: true };
}
