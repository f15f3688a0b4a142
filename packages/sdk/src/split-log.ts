/**
 * stdout and stderr of a command as two streams, from its one log.
 *
 * Each stream holds at most 1 MiB (and a frame) that nobody has read yet. When one of them is full the log is read no further, and the command is held back as
 * by a full pipe. But a reader of the one never waits for a reader of the other: when one is full and not read for a second while the other's reader has
 * nothing, the full one is left behind, and reads the log by itself from where it stopped once somebody reads it. The exit is known also when nobody reads.
 */
import type { ExecExit } from '@fuse/contract';
import type { ExecLogItem } from './exec-log.ts';

const UNREAD_BYTES = 1_048_576;
const STALLED_MS = 1_000;

export interface SplitOptions {
  /** Items of the log from an offset on, or, without one, from where the command's streams begin. */
  log: (offset?: number) => AsyncIterable<ExecLogItem>;
  onExit: (exit: ExecExit) => void;
  /** Bytes of the log that are not kept any more. What it throws, the streams fail with. */
  onGap: (gap: { from: number; to: number }) => void;
  /** Asked while nobody reads: whether the command has ended. */
  hasEnded: () => Promise<ExecExit | undefined>;
  ignore: { stdout?: boolean; stderr?: boolean };
  stalledMs?: number;
}

export interface SplitLog {
  stdout: ReadableStream<Uint8Array>;
  stderr: ReadableStream<Uint8Array>;
  /** Never rejects with a failure of the streams that they have told themselves; resolves when the shared log is at its end. */
  done: Promise<void>;
}

export function splitLog(options: SplitOptions): SplitLog {
  const stdout = new Side('stdout', options);
  const stderr = new Side('stderr', options);
  if (options.ignore.stdout) stdout.drop();
  if (options.ignore.stderr) stderr.drop();
  return { stdout: stdout.readable, stderr: stderr.readable, done: pump(stdout, stderr, options) };
}

async function pump(stdout: Side, stderr: Side, options: SplitOptions): Promise<void> {
  try {
    for await (const item of options.log()) {
      if (item.type === 'exit') options.onExit(item.exit);
      else if (item.type === 'gap') {
        try {
          options.onGap({ from: item.from, to: item.to });
        } catch (error) {
          stdout.fail(error);
          stderr.fail(error);
        }
      } else {
        const [side, other] = item.type === 'stdout' ? [stdout, stderr] : [stderr, stdout];
        side.take(item.data);
        await roomIn(side, other, item.next, options);
      }
    }
    stdout.end();
    stderr.end();
  } catch (error) {
    stdout.fail(error);
    stderr.fail(error);
    throw error;
  }
}

async function roomIn(side: Side, other: Side, next: number, options: SplitOptions): Promise<void> {
  let ended = false;
  while (side.isFull) {
    if (await side.room(options.stalledMs ?? STALLED_MS)) continue;
    if (other.isWaitedFor) return side.leaveBehind(next);
    if (ended) continue;
    const exit = await options.hasEnded();
    if (exit === undefined) continue;
    ended = true;
    options.onExit(exit);
  }
}

class Side {
  readonly readable: ReadableStream<Uint8Array>;
  readonly #name: 'stdout' | 'stderr';
  readonly #options: SplitOptions;
  #controller!: ReadableStreamDefaultController<Uint8Array>; // `start` is called by the stream's constructor
  /** Whether it takes anything more from whoever reads the log for it. */
  #open = true;
  /** Left behind: where its own reading begins. */
  #from: number | undefined;
  #alone = false;
  #wake = () => {};

  constructor(name: 'stdout' | 'stderr', options: SplitOptions) {
    this.#name = name;
    this.#options = options;
    this.readable = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => {
          this.#wake();
          if (this.#from !== undefined && !this.#alone) {
            this.#alone = true;
            void this.#readAlone(this.#from); // tells what fails by the stream
          }
        },
        cancel: () => this.drop(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: UNREAD_BYTES }),
    );
  }

  get isFull(): boolean {
    return this.#open && (this.#alone || this.#from === undefined) && (this.#controller.desiredSize ?? 0) <= 0;
  }

  /** Somebody reads it, and has read all there is. */
  get isWaitedFor(): boolean {
    return this.#open && this.readable.locked && this.#controller.desiredSize === UNREAD_BYTES;
  }

  /** True once it may have room, false after so long without. */
  room(ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  take(bytes: Uint8Array): void {
    if (this.#open && this.#from === undefined && bytes.length > 0) this.#controller.enqueue(bytes);
  }

  leaveBehind(next: number): void {
    this.#from = next;
  }

  drop(): void {
    this.#open = false;
    this.#wake();
  }

  end(): void {
    if (this.#from === undefined) this.#close();
  }

  fail(error: unknown): void {
    if (this.#from === undefined) this.#fail(error);
  }

  #close(): void {
    if (this.#open) this.#controller.close();
    this.drop();
  }

  #fail(error: unknown): void {
    if (this.#open) this.#controller.error(error);
    this.drop();
  }

  async #readAlone(from: number): Promise<void> {
    try {
      for await (const item of this.#options.log(from)) {
        if (!this.#open) return;
        if (item.type === 'gap') this.#options.onGap({ from: item.from, to: item.to });
        else if (item.type === this.#name) {
          this.#controller.enqueue(item.data);
          while (this.isFull) await this.room(STALLED_MS);
        }
      }
      this.#close();
    } catch (error) {
      this.#fail(error);
    }
  }
}
