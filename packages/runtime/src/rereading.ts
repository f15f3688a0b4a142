/** What is read at the start and may change afterwards, such as certificates in files: looked at again from time to time. */
import type { Logger } from './logger.ts';

export interface RereadingOptions<T> {
  /** For the log. */
  what: string;
  read: () => T;
  /** Takes what is new; when it throws, that counts for nothing, and is tried again with the next look. */
  apply: (value: T) => void;
  everyMs: number;
  log: Logger;
}

/** What can not be read or taken leaves everything as it was, and is logged once. */
export class Rereading<T> implements AsyncDisposable {
  readonly #options: RereadingOptions<T>;
  readonly #timer: NodeJS.Timeout;
  #current: string;
  #problem = '';

  /** `initial`: what is in use now. */
  constructor(initial: T, options: RereadingOptions<T>) {
    this.#options = options;
    this.#current = JSON.stringify(initial);
    this.#timer = setInterval(() => this.#look(), options.everyMs);
    this.#timer.unref();
  }

  #look(): void {
    const { what, read, apply, log } = this.#options;
    try {
      const value = read();
      const text = JSON.stringify(value);
      if (text !== this.#current) {
        apply(value);
        this.#current = text;
        log.info(`${what} read again`);
      }
      this.#problem = '';
    } catch (error) {
      const problem = String(error);
      if (problem !== this.#problem) log.error({ err: error }, `${what} cannot be taken; what was before stays in use`);
      this.#problem = problem;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
  }
}
