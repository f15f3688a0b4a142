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
  readonly #firstFed: Promise<void>;
  #onFirstFed: () => void = () => {};

  constructor(parts: ExecInputParts) {
    this.#parts = parts;
    this.#firstFed = new Promise((resolve) => {
      this.#onFirstFed = resolve;
    });
    if (!parts.record().stdin_file) this.#onFirstFed();
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
    await feedFirstStdin({ directory, guestId, end: !record().stdin_open, guest: guestWhenRunning }, signal);
    await change({ stdin_file: false });
    await forgetFirstStdin(directory);
    this.#onFirstFed();
  }

  async write(options: StdinOptions, body: Readable | Uint8Array, signal: AbortSignal): Promise<ExecStdin> {
    const { guest, guestId, change } = this.#parts;
    this.#requireOpen();
    await untilAborted(this.#firstFed, signal);
    this.#requireOpen();
    try {
      const answer = await guest().writeStdin(guestId, options, body, signal);
      this.#takenBytes = answer.stdin_bytes;
      if (answer.closed || options.end === true) await change({ stdin_closed: true });
      return answer;
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') throw closedError(error);
      throw error;
    }
  }

  /** As the guest has it, as long as the command runs. */
  async status(signal: AbortSignal): Promise<{ stdin_bytes: number; stdin_closed: boolean }> {
    const { guest, guestId, record } = this.#parts;
    if (record().state === 'running') this.#takenBytes = (await guest().execStatus(guestId, signal)).stdin_bytes;
    return { stdin_bytes: this.#takenBytes, stdin_closed: !this.open };
  }

  #requireOpen(): void {
    if (!this.open) throw closedError();
  }
}

function closedError(cause?: unknown): AppError {
  return new AppError('conflict', 'the command takes no more stdin', { details: { reason: 'stdin_closed' }, cause });
}

async function untilAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  const stopped = rejection(signal);
  try {
    await Promise.race([work, stopped.promise]);
  } finally {
    stopped.forget();
  }
}
