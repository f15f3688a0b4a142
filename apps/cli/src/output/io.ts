import { CliError } from '../cli-error.ts';
import { systemErrorText } from './system-error-text.ts';

/** Where a command's data and talk go. Data is written byte for byte, at the reader's pace. */
export interface Io {
  /** Data. Resolves when there is room for more; rejects with BrokenPipe once nobody reads it any more, with CliError when it cannot be written (a full disk). */
  out(data: string | Uint8Array): Promise<void>;
  /** What the guest says on stderr: byte for byte as well. */
  err(data: Uint8Array): Promise<void>;
  /** Talk: one line for people, on stderr. */
  say(line: string): void;
  /** Aborted when stdout takes no more, with what `out` rejects with. */
  readonly brokenPipe: AbortSignal;
  readonly errIsTerminal: boolean;
}

/** As a program that SIGPIPE ends. */
export const BROKEN_PIPE_EXIT_CODE = 141;

export class BrokenPipe extends Error {
  override readonly name = 'BrokenPipe';
}

export function processIo(): Io {
  const broken = new AbortController();
  process.stdout.on('error', (error) => broken.abort(outputError(error)));
  // Nobody is left to tell.
  process.stderr.on('error', () => {});
  return {
    out: (data) =>
      new Promise((resolve, reject) => {
        if (broken.signal.aborted) return reject(broken.signal.reason);
        process.stdout.write(data, (error) => {
          if (error === undefined || error === null) return resolve();
          reject(outputError(error));
        });
      }),
    err: (data) => new Promise((resolve) => process.stderr.write(data, () => resolve())),
    say: (line) => void process.stderr.write(`${line}\n`),
    brokenPipe: broken.signal,
    errIsTerminal: process.stderr.isTTY === true,
  };
}

function outputError(cause: Error): Error {
  if ('code' in cause && cause.code === 'EPIPE') return new BrokenPipe('nobody reads the output any more', { cause });
  return new CliError(`cannot write to standard output: ${systemErrorText(cause) ?? cause.message}`, { cause });
}
