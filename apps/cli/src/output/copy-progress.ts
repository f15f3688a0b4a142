import type { CopyProgress } from '@fuse/sdk/node';
import { formatBytes, printable } from './format.ts';
import type { Io } from './io.ts';

const FIRST_AFTER_MS = 1_000;
const EVERY_MS = 200;
const WIDTH = 60;

/** One line on a terminal that is written over again and again, once it takes long. */
export class CopyProgressLine {
  readonly #io: Io;
  readonly #off: boolean;
  readonly #startedMs = performance.now();
  #shownMs = 0;

  constructor(io: Io, quiet: boolean) {
    this.#io = io;
    this.#off = quiet || !io.errIsTerminal;
  }

  show({ path, files, bytes }: CopyProgress): void {
    const nowMs = performance.now();
    if (this.#off || nowMs - this.#startedMs < FIRST_AFTER_MS || nowMs - this.#shownMs < EVERY_MS) return;
    this.#shownMs = nowMs;
    const name = printable(path);
    const tail = name.length > WIDTH ? `…${name.slice(-WIDTH)}` : name;
    void this.#io.err(Buffer.from(`\r\x1b[K${path === '' ? '' : `${files} files, `}${formatBytes(bytes)} ${tail}`));
  }

  end(): void {
    if (this.#shownMs === 0) return;
    this.#shownMs = 0;
    void this.#io.err(Buffer.from('\r\x1b[K'));
  }
}
