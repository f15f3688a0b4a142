/**
 * The end of a command's output without secrets. They are looked for in each of its streams, so that what the other wrote in between hides none; where the
 * output was cut, a part of one that stands at the cut goes as well.
 */
import { frameType } from '@fuse/contract';
import { REDACTED, secretValues } from './redaction.ts';

interface Piece {
  stream: number;
  /** In its stream. */
  from: number;
  bytes: Uint8Array;
}

export class OutputTail {
  #pieces: Piece[] = [];
  readonly #lengths = new Map<number, number>();
  #isCut: boolean;

  /** `isCut`: something came before the first frame. */
  constructor(isCut: boolean) {
    this.#isCut = isCut;
  }

  add(type: number, payload: Uint8Array): void {
    if (type === frameType.gap) {
      this.#pieces = [];
      this.#lengths.clear();
      this.#isCut = true;
    }
    if (type !== frameType.stdout && type !== frameType.stderr) return;
    const from = this.#lengths.get(type) ?? 0;
    this.#pieces.push({ stream: type, from, bytes: payload });
    this.#lengths.set(type, from + payload.length);
  }

  /** At most `maxBytes` of its end, as text. `isBroken`: the command was ended while it may have been writing. */
  text(secrets: Record<string, string>, { maxBytes, isBroken }: { maxBytes: number; isBroken: boolean }): string {
    const values = secretValues(secrets).map((value) => Buffer.from(value));
    const masks = new Map([...this.#lengths.keys()].map((stream) => [stream, this.#mask(stream, values, isBroken)]));
    const shown: Uint8Array[] = [];
    const marker = Buffer.from(REDACTED);
    for (const { stream, from, bytes } of this.#pieces) {
      const mask = masks.get(stream);
      for (let at = 0; at < bytes.length; ) {
        const isSecret = mask?.[from + at] === 1;
        let end = at + 1;
        while (end < bytes.length && (mask?.[from + end] === 1) === isSecret) end += 1;
        if (!isSecret) shown.push(bytes.subarray(at, end));
        else if (mask?.[from + at - 1] !== 1) shown.push(marker); // once, in whatever pieces it came
        at = end;
      }
    }
    return new TextDecoder().decode(Buffer.concat(shown).subarray(-maxBytes));
  }

  /** 1 where a secret is. */
  #mask(stream: number, values: readonly Buffer[], isBroken: boolean): Uint8Array {
    const bytes = Buffer.concat(this.#pieces.filter((piece) => piece.stream === stream).map((piece) => piece.bytes));
    const mask = new Uint8Array(bytes.length);
    for (const value of values) {
      for (let at = bytes.indexOf(value); at >= 0; at = bytes.indexOf(value, at + value.length))
        mask.fill(1, at, at + value.length);
      if (this.#isCut) mask.fill(1, 0, endWithin(bytes.subarray(0, value.length - 1).toReversed(), value.toReversed()));
      if (isBroken) mask.fill(1, bytes.length - endWithin(bytes.subarray(-(value.length - 1)), value));
    }
    return mask;
  }
}

/** How much of the beginning of `value` the end of `bytes` is. (Knuth, Morris, Pratt: a client chooses both.) */
function endWithin(bytes: Uint8Array, value: Uint8Array): number {
  const borders = new Uint32Array(value.length + 1);
  const next = (matched: number, byte: number | undefined): number => {
    let length = matched;
    while (length > 0 && value[length] !== byte) length = borders[length] ?? 0;
    return value[length] === byte ? length + 1 : 0;
  };
  for (let at = 1; at < value.length; at += 1) borders[at + 1] = next(borders[at] ?? 0, value[at]);
  return bytes.reduce(next, 0);
}
