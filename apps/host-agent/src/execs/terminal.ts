/**
 * The size of an exec's terminal: what every viewer can show, that is the smallest rows and the smallest cols of those attached. When the last one
 * leaves it stays as it is.
 */
import type { TerminalSize } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';

export interface Viewer {
  /** Resolves once the terminal has the size that follows from it, or could not be told. */
  resize(size: TerminalSize): Promise<void>;
  leave(): Promise<void>;
}

export class Terminal {
  readonly #apply: (size: TerminalSize) => Promise<void>;
  readonly #log: Logger;
  readonly #onViewers: () => void;
  readonly #viewers = new Map<Viewer, TerminalSize | undefined>();
  #size: TerminalSize;
  #applying: Promise<void> = Promise.resolve();

  /** `apply` tells the guest, and whoever keeps the size. `onViewers`: somebody came or left. */
  constructor(
    size: TerminalSize,
    apply: (size: TerminalSize) => Promise<void>,
    { log, onViewers = () => {} }: { log: Logger; onViewers?: () => void },
  ) {
    this.#size = size;
    this.#apply = apply;
    this.#log = log;
    this.#onViewers = onViewers;
  }

  get size(): TerminalSize {
    return this.#size;
  }

  get viewers(): number {
    return this.#viewers.size;
  }

  /** One that says no size only watches. */
  attach(): Viewer {
    const viewer: Viewer = {
      resize: (size) => {
        if (this.#viewers.has(viewer)) this.#viewers.set(viewer, size);
        return this.#settle();
      },
      leave: () => {
        if (!this.#viewers.delete(viewer)) return Promise.resolve();
        this.#onViewers();
        return this.#settle();
      },
    };
    this.#viewers.set(viewer, undefined);
    this.#onViewers();
    return viewer;
  }

  get #wanted(): TerminalSize {
    const sizes = [...this.#viewers.values()].filter((size) => size !== undefined);
    if (sizes.length === 0) return this.#size;
    return { rows: Math.min(...sizes.map(({ rows }) => rows)), cols: Math.min(...sizes.map(({ cols }) => cols)) };
  }

  /** One change at a time; only the last that is wanted counts. */
  #settle(): Promise<void> {
    this.#applying = this.#applying.then(async () => {
      const size = this.#wanted;
      if (size.rows === this.#size.rows && size.cols === this.#size.cols) return;
      try {
        await this.#apply(size);
        this.#size = size;
      } catch (error) {
        this.#log.debug({ err: error }, 'terminal not resized');
      }
    });
    return this.#applying;
  }
}
