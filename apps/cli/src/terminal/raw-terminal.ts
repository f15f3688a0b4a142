/**
 * This process's terminal in raw mode, given back as it was on every way out: dispose, process.exit, an uncaught error, a signal. After a SIGCONT it is raw
 * again (the shell that stopped us has set it as it likes).
 */
import { spawnSync } from 'node:child_process';
import { writeSync } from 'node:fs';
import type { TerminalSize } from '@fuse/contract';
import { Interrupted } from '../interrupt.ts';
import { ScreenModes } from './screen-modes.ts';

const ENDING = ['SIGTERM', 'SIGHUP', 'SIGINT'] as const;

export class RawTerminal implements Disposable {
  readonly #ended = new AbortController();
  readonly #modes = new ScreenModes();
  readonly #restore = () => this[Symbol.dispose]();
  readonly #onContinue = () => {
    process.stdin.setRawMode(false); // it would take itself for raw still
    makeRaw();
  };
  readonly #onSignals = ENDING.map((name) => ({ name, listen: () => this.#ended.abort(new Interrupted(name)) }));
  #isRaw = false;

  constructor() {
    process.on('exit', this.#restore);
    process.on('SIGCONT', this.#onContinue);
    for (const { name, listen } of this.#onSignals) process.on(name, listen);
    makeRaw();
    this.#isRaw = true;
  }

  /** Aborted with Interrupted when a signal asks this process to end. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  get size(): TerminalSize {
    const { rows, columns } = process.stdout;
    return { rows: rows > 0 ? rows : 24, cols: columns > 0 ? columns : 80 };
  }

  /** Resolves when the terminal has taken the bytes. */
  write(chunk: Uint8Array): Promise<void> {
    this.#modes.watch(chunk);
    return new Promise((resolve) => process.stdout.write(chunk, () => resolve()));
  }

  onResize(listen: () => void): void {
    process.stdout.on('resize', listen);
  }

  [Symbol.dispose](): void {
    if (!this.#isRaw) return;
    this.#isRaw = false;
    process.off('exit', this.#restore);
    process.off('SIGCONT', this.#onContinue);
    for (const { name, listen } of this.#onSignals) process.off(name, listen);
    process.stdout.removeAllListeners('resize');
    process.stdin.setRawMode(false);
    process.stdin.pause();
    writeNow(this.#modes.restoring());
  }
}

/**
 * Node leaves the terminal to make a carriage return of every line feed; the guest's terminal has done that already where it was wanted. Without `stty` it is
 * as Node has it. Setting raw mode off puts both back.
 */
function makeRaw(): void {
  process.stdin.setRawMode(true);
  spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] });
}

/** Synchronously: the process may be on its way out. */
function writeNow(text: string): void {
  try {
    writeSync(process.stdout.fd, text);
  } catch {
    // The terminal is gone, or takes nothing: there is nobody to restore it for.
  }
}
