/**
 * Takes out of a terminal's scrollback what asks the terminal something (which colours, where is the cursor, what are you). The program that asked has had its answer; shown
 * again, the terminal would answer again, and the answer would be typed into whatever runs now.
 */
const PATTERNS = [
  // Device attributes, status reports, mode reports, version, keyboard protocol, parameters.
  '\\x1b\\[[>=?]?[0-9;]*c',
  '\\x1b\\[\\??[0-9;]*n',
  '\\x1b\\[\\??[0-9;]*\\$p',
  '\\x1b\\[>[0-9]*q',
  '\\x1b\\[\\?u',
  '\\x1b\\[[01]?x',
  // Reports of the window.
  '\\x1b\\[(?:1[1-9]|2[01])(?:;[0-9]+)*t',
  // Colours and the clipboard.
  '\\x1b\\](?:4;[0-9]+|1[0-9]|52;[a-z0-9]*);\\?(?:\\x07|\\x1b\\\\)',
  // Capabilities and settings.
  '\\x1bP[+$]q[^\\x1b]{0,256}\\x1b\\\\',
  '\\x05',
];
const QUERY = new RegExp(PATTERNS.join('|'), 'g');
/** What may be the beginning of one. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
const BEGINNING = /\x1b(?:\[[>=?]?[0-9;]*\$?|\](?:[0-9a-z;]*\??\x1b?)?|P(?:[+$](?:q[^\x1b]{0,256}\x1b?)?)?)?$/;
const MAX_HELD = 512;

export class QueryFilter {
  #held = '';

  /** What is not a query; the beginning of what may be one is held back. */
  push(chunk: Uint8Array): Uint8Array {
    if (this.#held === '' && !chunk.includes(0x1b) && !chunk.includes(0x05)) return chunk;
    const text = (this.#held + latin1(chunk)).replace(QUERY, '');
    const beginning = BEGINNING.exec(text.slice(-MAX_HELD))?.[0] ?? '';
    this.#held = beginning;
    return bytes(text.slice(0, text.length - beginning.length));
  }

  /** What was held back. */
  end(): Uint8Array {
    const rest = bytes(this.#held);
    this.#held = '';
    return rest;
  }
}

/** One character a byte. */
function latin1(chunk: Uint8Array): string {
  let text = '';
  for (let at = 0; at < chunk.length; at += 8_192) text += String.fromCharCode(...chunk.subarray(at, at + 8_192));
  return text;
}

const bytes = (text: string): Uint8Array => Uint8Array.from(text, (char) => char.charCodeAt(0));
