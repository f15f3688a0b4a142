/**
 * Which modes of the terminal a program has switched on, read from what it writes, so that they can be switched off when it is left: the alternate screen,
 * a hidden cursor, mouse reports, bracketed paste, application keys.
 */
const ESC = '\x1b';
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
const SEQUENCE = /\x1b(?:\[\?([\d;]*)([hl])|([=>])|(c))/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
const BEGINNING = /\x1b(?:\[(?:\?[\d;]{0,30})?)?$/;

/** Modes that are off at the start and do harm when they stay on; that of the cursor (25) is the other way round. */
const WATCHED = new Set([1, 9, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004, 2026]);
const CURSOR_SHOWN = 25;

export class ScreenModes {
  readonly #on = new Set<number>();
  #cursorHidden = false;
  #keypad = false;
  #carry = '';

  watch(chunk: Uint8Array): void {
    if (this.#carry === '' && !chunk.includes(0x1b)) return;
    const text = this.#carry + Buffer.from(chunk).toString('latin1');
    for (const [, numbers, letter, keypad, reset] of text.matchAll(SEQUENCE)) {
      if (reset !== undefined) this.#reset();
      else if (keypad !== undefined) this.#keypad = keypad === '=';
      else for (const number of (numbers ?? '').split(';')) this.#set(Number(number), letter === 'h');
    }
    this.#carry = BEGINNING.exec(text)?.[0] ?? '';
  }

  /** What puts the terminal back; always ends colours. */
  restoring(): string {
    const off = [...this.#on].map((mode) => `${ESC}[?${mode}l`).join('');
    return `${off}${this.#cursorHidden ? `${ESC}[?25h` : ''}${this.#keypad ? `${ESC}>` : ''}${ESC}[0m`;
  }

  #set(mode: number, on: boolean): void {
    if (mode === CURSOR_SHOWN) this.#cursorHidden = !on;
    else if (on && WATCHED.has(mode)) this.#on.add(mode);
    else this.#on.delete(mode);
  }

  #reset(): void {
    this.#on.clear();
    this.#cursorHidden = false;
    this.#keypad = false;
  }
}
