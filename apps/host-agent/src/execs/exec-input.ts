/** An exec's stdin by requests: behind what came with its start, until it is closed. */
import type { Readable } from 'node:stream';
import { AppError, type ExecStdin } from '@fuse/contract';
import type { StdinOptions } from '../guest/exec-stdin.ts';
import type { Guest } from '../guest/guest.ts';
import type { ExecRecord } from './exec-record.ts';
import { feedFirstStdin, forgetFirstStdin } from './first-stdin.ts';
import { rejection } from './rejection.ts';

export interface ExecInputParts {
  directory: string;
  guestId: string;
  record: () => ExecRecord;
  change: (change: Partial<ExecRecord>) => Promise<void>;
  guest: () => Guest;
  guestWhenRunning: (signal: AbortSignal) => Promise<Guest>;
}

export class ExecInput {
  readonly #parts: ExecInputParts;
  /** Of the last word of the guest. */
  #takenBytes = 0;
  /** False once it is clear that the command will never have all of it. */
  readonly #firstFed: Promise<boolean>;
  #onFirstFed: (fed: boolean) => void = () => {};

  constructor(parts: ExecInputParts) {
    this.#parts = parts;
    this.#firstFed = new Promise((resolve) => {
      this.#onFirstFed = resolve;
    });
    if (!parts.record().stdin_file) this.#onFirstFed(true);
  }

  /** Whether more may come. */
  get open(): boolean {
    const { state, stdin_open, stdin_closed } = this.#parts.record();
    return state === 'running' && stdin_open && !stdin_closed;
  }

  /** Of a command that runs. Resolves once it has all that came with its start. */
  async feedFirst(signal: AbortSignal): Promise<void> {
    const { directory, guestId, record, change, guestWhenRunning } = this.#parts;
    if (!record().stdin_file) return;
    try {
      await feedFirstStdin({ directory, guestId, end: !record().stdin_open, guest: guestWhenRunning }, signal);
    } catch (error) {
      this.#onFirstFed(false);
      throw error;
    }
    await change({ stdin_file: false });
    await forgetFirstStdin(directory);
    this.#onFirstFed(true);
  }

  /** One with an offset may repeat what was taken before stdin was closed, or the command ended. */
  async write(options: StdinOptions, body: Readable | Uint8Array, signal: AbortSignal): Promise<ExecStdin> {
    const { guest, guestId, record, change } = this.#parts;
    const legal = () => this.open || (record().stdin_open && options.offset !== undefined);
    if (!legal()) throw this.#closedError();
    const inTurn = await untilAborted(this.#firstFed, signal);
    if (!legal() || (!inTurn && !this.open)) throw this.#closedError();
    if (!inTurn) throw new AppError('unavailable', 'the host agent is stopping');
    try {
      const answer = await guest().writeStdin(guestId, options, body, signal);
      this.#takenBytes = answer.stdin_bytes;
      if (answer.closed && !record().stdin_closed) await change({ stdin_closed: true });
      return answer;
    } catch (error) {
      const ended = record().state !== 'running' || (error instanceof AppError && error.code === 'not_found');
      throw ended && !isConflictOfStdin(error) ? this.#closedError(error) : error;
    }
  }

  /** As the guest has it, as long as the command runs. What came with the start is on its way to it. */
  async status(signal: AbortSignal): Promise<{ stdin_bytes: number; stdin_closed: boolean }> {
    const { guest, guestId, record } = this.#parts;
    if (record().state === 'running') this.#takenBytes = (await guest().execStatus(guestId, signal)).stdin_bytes;
    const { stdin_file, first_stdin_bytes } = record();
    const stdin_bytes = Math.max(this.#takenBytes, stdin_file ? first_stdin_bytes : 0);
    return { stdin_bytes, stdin_closed: !this.open };
  }

  #closedError(cause?: unknown): AppError {
    return new AppError('conflict', 'the command takes no more stdin', {
      details: { reason: 'stdin_closed', stdin_bytes: String(this.#takenBytes) },
      cause,
    });
  }
}

const isConflictOfStdin = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'conflict' && error.details?.stdin_bytes !== undefined;

async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const stopped = rejection(signal);
  try {
    return await Promise.race([work, stopped.promise]);
  } finally {
    stopped.forget();
  }
}
