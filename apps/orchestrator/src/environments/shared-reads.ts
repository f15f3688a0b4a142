/**
 * Many that read the same at once: the first reads, all that come while it does share one more read, which begins after the first has ended. So
 * whoever asks sees everything that was written before it asked, and fifty commands in one environment look it up twice.
 */
export class SharedReads<T> {
  readonly #reads = new Map<string, { running: Promise<T>; next: Promise<T> | undefined }>();

  read(key: string, read: () => Promise<T>): Promise<T> {
    const reads = this.#reads.get(key);
    if (reads === undefined) return this.#begin(key, read);
    reads.next ??= reads.running.then(
      () => this.#begin(key, read),
      () => this.#begin(key, read),
    );
    return reads.next;
  }

  #begin(key: string, read: () => Promise<T>): Promise<T> {
    const running = read();
    const reads = { running, next: undefined };
    this.#reads.set(key, reads);
    const end = () => {
      if (this.#reads.get(key) === reads && reads.next === undefined) this.#reads.delete(key);
    };
    running.then(end, end);
    return running;
  }
}
