const MAX_TIMER_MS = 2 ** 31 - 1;

/** One timer at a time, for any time ahead. */
export class Alarm {
  readonly #onDue: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(onDue: () => void) {
    this.#onDue = onDue;
  }

  /** Replaces an earlier time. */
  set(atMs: number): void {
    this.clear();
    const leftMs = Math.max(atMs - Date.now(), 0);
    this.#timer =
      leftMs > MAX_TIMER_MS ? setTimeout(() => this.set(atMs), MAX_TIMER_MS) : setTimeout(() => this.#ring(), leftMs);
  }

  /** Until it has rung or was cleared. */
  get isSet(): boolean {
    return this.#timer !== undefined;
  }

  clear(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #ring(): void {
    this.#timer = undefined;
    this.#onDue();
  }
}
