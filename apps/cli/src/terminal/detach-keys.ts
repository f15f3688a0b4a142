/**
 * Keys that leave a session without ending it, written as docker writes them: "ctrl-p,ctrl-q". Each part is one character or "ctrl-" with a letter
 * or one of @ [ \ ] ^ _.
 */
import { InvalidArgumentError } from 'commander';

export const DEFAULT_DETACH_KEYS = 'ctrl-p,ctrl-q';

/** The bytes that the keys send; none for "" (there is no way to detach then). */
export function parseDetachKeys(text: string): Uint8Array {
  if (text === '') return new Uint8Array();
  return Uint8Array.from(text.split(',').map(keyByte));
}

function keyByte(key: string): number {
  const control = /^ctrl-([a-z@[\\\]^_])$/i.exec(key)?.[1];
  if (control !== undefined) return control.toUpperCase().charCodeAt(0) & 0x1f;
  if (/^[\x21-\x7e]$/.test(key)) return key.charCodeAt(0);
  throw new InvalidArgumentError('Write keys such as ctrl-p,ctrl-q or ctrl-]; "" for none.');
}

/** Finds the keys in what is typed, however it is cut. What may be their beginning is held back until it is known not to be. */
export class DetachScanner {
  readonly #keys: Uint8Array;
  #matched = 0;

  constructor(keys: Uint8Array) {
    this.#keys = keys;
  }

  /** What goes on to the session; with `detached` nothing that follows does. */
  push(chunk: Uint8Array): { pass: Uint8Array; detached: boolean } {
    if (this.#keys.length === 0) return { pass: chunk, detached: false };
    const pass: number[] = [];
    for (const byte of chunk) {
      while (this.#matched > 0 && byte !== this.#keys[this.#matched]) pass.push(...this.#fallBack());
      if (byte !== this.#keys[this.#matched]) pass.push(byte);
      else if (++this.#matched === this.#keys.length) return { pass: Uint8Array.from(pass), detached: true };
    }
    return { pass: Uint8Array.from(pass), detached: false };
  }

  /** The longest shorter beginning of the keys that what is held back ends with; the bytes before it are no longer held back. */
  #fallBack(): Uint8Array {
    const held = this.#keys.subarray(0, this.#matched);
    for (let length = this.#matched - 1; length >= 0; length -= 1) {
      const isBeginning = held.subarray(held.length - length).every((byte, index) => byte === this.#keys[index]);
      if (!isBeginning) continue;
      this.#matched = length;
      return held.subarray(0, held.length - length);
    }
    return new Uint8Array(); // a length of 0 is always one
  }
}
