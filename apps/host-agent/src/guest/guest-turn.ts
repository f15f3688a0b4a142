/**
 * How long the guest may stand still in a transfer. Only its own turn is timed: a caller that sends or reads slowly, or not for a while,
 * holds nobody up but itself.
 */
import type { ClientHttp2Stream } from 'node:http2';
import { AppError } from '@fuse/contract';
import { abandon } from './stream-chunks.ts';

const STILL_MS = 120_000;

export class GuestTurn {
  readonly #stream: ClientHttp2Stream;
  readonly #what: string;
  #timer: NodeJS.Timeout | undefined;
  /** It was too slow, and the stream is given up. */
  late: AppError | undefined;

  constructor(stream: ClientHttp2Stream, what: string) {
    this.#stream = stream;
    this.#what = what;
  }

  begin(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.late = new AppError('unavailable', `${this.#what} stood still for ${STILL_MS} ms`);
      abandon(this.#stream);
    }, STILL_MS);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
