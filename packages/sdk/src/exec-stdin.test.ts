import { createHash, randomBytes } from 'node:crypto';
import type { ExecStdin } from '@fuse/contract';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FuseApiError, FuseConnectionError } from './errors.ts';
import type { StdinPiece } from './exec-calls.ts';
import { execStdin, type StdinOptions } from './exec-stdin.ts';

const MiB = 1_048_576;

/** A command behind the contract of `POST …/stdin`: it takes what comes, until the connection is cut after so many bytes of the request. */
class Command {
  requests = 0;
  taken = 0;
  /** It takes so many, and is at its end then. */
  wants = Number.POSITIVE_INFINITY;
  isClosed = false;
  /** Of the next request; undefined: it lasts. */
  cut: () => number | undefined = () => undefined;
  /** Before each answer. */
  answers: (signal: AbortSignal) => Promise<void> = async () => {};
  onTaken: () => void = () => {};
  readonly #sum = createHash('sha256');
  #running = 0;

  stream(options: Partial<StdinOptions> = {}): WritableStream<Uint8Array> {
    const signal = new AbortController().signal;
    return execStdin((piece, sent) => this.#post(piece, sent), { offset: 0, random: () => 0.01, signal, ...options });
  }

  sha256(): string {
    return this.#sum.copy().digest('hex');
  }

  async #post({ bytes, offset, end }: StdinPiece, signal: AbortSignal): Promise<ExecStdin> {
    this.requests += 1;
    let at = offset ?? this.taken;
    while (at > this.taken && this.#running > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    if (at > this.taken) throw this.#refusal('stdin_ahead');
    if (this.isClosed && at === this.taken) throw this.#refusal('stdin_closed');
    let left = this.cut() ?? Number.POSITIVE_INFINITY;
    this.#running += 1;
    try {
      const body = bytes instanceof Uint8Array ? new Blob([bytes.slice()]).stream() : bytes;
      for await (const chunk of body) {
        signal.throwIfAborted();
        const part = chunk.subarray(0, left);
        this.#take(part.subarray(Math.max(0, this.taken - at)));
        at += part.length;
        left -= part.length;
        if (left === 0) throw new FuseConnectionError('cut', { cause: undefined, sent: true });
        if (this.isClosed && at > this.taken) throw this.#refusal('stdin_closed');
      }
    } finally {
      this.#running -= 1;
    }
    if (left !== Number.POSITIVE_INFINITY) throw new FuseConnectionError('cut', { cause: undefined, sent: true });
    await this.answers(signal);
    this.isClosed ||= end;
    return { stdin_bytes: this.taken, closed: this.isClosed };
  }

  #take(bytes: Uint8Array): void {
    const wanted = bytes.subarray(0, this.wants - this.taken);
    this.#sum.update(wanted);
    this.taken += wanted.length;
    if (this.taken >= this.wants) this.isClosed = true;
    this.onTaken();
  }

  #refusal(reason: string): FuseApiError {
    const details = { reason, stdin_bytes: String(this.taken) };
    return new FuseApiError({ status: 409, code: 'conflict', reason, details, hint: undefined, body: '' });
  }
}

const untilAborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));

describe.each([true, false])('stdin, with bodies that stream: %s', (streams) => {
  it('arrives whole and once, however it is written and wherever it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(fc.nat(300), fc.nat(70_000), fc.nat(3_000_000)), { maxLength: 30 }),
        fc.array(fc.option(fc.nat(5_000_000), { nil: undefined }), { maxLength: 6 }),
        async (sizes, cuts) => {
          const command = new Command();
          command.cut = () => cuts.pop();
          const sum = createHash('sha256');
          const writer = command.stream({ streams }).getWriter();
          for (const size of sizes) {
            const bytes = randomBytes(size);
            sum.update(bytes);
            await writer.write(bytes);
            bytes.fill(0); // it is the caller's again
          }
          await writer.close();
          expect(command.sha256()).toBe(sum.digest('hex'));
          expect(command.isClosed).toBe(true);
        },
      ),
      { numRuns: 10 },
    );
  }, 60_000);

  it('holds the writer back before much is kept', async () => {
    const command = new Command();
    const stop = new AbortController();
    command.answers = untilAborted;
    const writer = command.stream({ streams, signal: stop.signal }).getWriter();
    writer.closed.catch(() => {});
    let written = 0;
    const piece = new Uint8Array(MiB);
    const writing = (async () => {
      for (;;) {
        await writer.write(piece);
        written += 1;
      }
    })();
    writing.catch(() => {});
    let before = -1;
    while (before !== written) {
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    expect(written).toBeGreaterThanOrEqual(4);
    expect(written).toBeLessThanOrEqual(30);
    const enough = new Error('enough');
    stop.abort(enough);
    await expect(writing).rejects.toBe(enough);
  });

  it('takes up where the command is when that is not known', async () => {
    const command = new Command();
    command.taken = 70;
    const writer = command.stream({ streams, offset: undefined }).getWriter();
    await writer.write(new Uint8Array(30));
    await writer.close();
    expect(command.taken).toBe(100);
  });

  it('that nobody wants fails, and does not when the command had all of it', async () => {
    const command = new Command();
    command.wants = 100;
    const writer = command.stream({ streams }).getWriter();
    await writer.write(new Uint8Array(100));
    await writer.close();
    const another = new Command();
    another.wants = 100;
    const failing = another.stream({ streams }).getWriter();
    failing.closed.catch(() => {});
    await failing.write(new Uint8Array(101)).catch(() => {});
    await expect(failing.close()).rejects.toMatchObject({ details: { reason: 'stdin_closed' } });
  });

  it('is sent again when no answer comes', async () => {
    const command = new Command();
    let silent = 2;
    command.answers = async (signal) => {
      if (silent-- > 0) await untilAborted(signal);
    };
    const writer = command.stream({ streams, stallMs: 300 }).getWriter();
    await writer.write(new Uint8Array(5_000));
    await writer.close();
    expect(command).toMatchObject({ taken: 5_000, isClosed: true });
  });

  it('that is given up ends', async () => {
    const command = new Command();
    const writer = command.stream({ streams }).getWriter();
    await writer.write(new Uint8Array(10));
    await writer.abort();
    expect(command.isClosed).toBe(true);
  });
});

describe('a body that streams', () => {
  it('brings each write at once, and goes on with the next', async () => {
    const command = new Command();
    const writer = command.stream({ streams: true }).getWriter();
    for (let i = 1; i <= 20; i++) {
      const taken = new Promise<void>((resolve) => {
        command.onTaken = () => {
          if (command.taken === i) resolve();
        };
      });
      await writer.write(new Uint8Array(1));
      await taken;
    }
    expect(command.requests).toBeLessThan(20);
    await writer.close();
    expect(command.taken).toBe(20);
  });

  it('makes few requests of much', async () => {
    const command = new Command();
    const writer = command.stream({ streams: true }).getWriter();
    const piece = new Uint8Array(65_536);
    for (let i = 0; i < 40 * 16; i++) await writer.write(piece);
    await writer.close();
    expect(command.taken).toBe(40 * MiB);
    expect(command.requests).toBeLessThanOrEqual(8);
  });
});
