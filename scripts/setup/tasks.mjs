/**
 * Steps side by side: each starts as soon as the steps that it needs are done. The first failure stops the others, and nothing that
 * needs a failed step is begun.
 */
import { Progress } from './progress.mjs';

/**
 * @typedef {{signal: AbortSignal, onLine: (line: string) => void}} StepContext
 * @typedef {{made: boolean, note?: string}} StepResult  `made`: false when there was nothing to do
 */

export class Tasks {
  #progress = new Progress();
  #abort = new AbortController();
  /** @type {Promise<unknown>[]} */
  #all = [];

  /** @param {AbortSignal} signal */
  constructor(signal) {
    signal.addEventListener('abort', () => this.#abort.abort(signal.reason), { once: true });
  }

  /**
   * @template {Promise<unknown>[] | []} Needs
   * @template {StepResult} Result
   * @param {string} title
   * @param {Needs} needs
   * @param {(context: StepContext, ...needs: {[K in keyof Needs]: Awaited<Needs[K]>}) => Promise<Result>} work
   * @returns {Promise<Result>}
   */
  add(title, needs, work) {
    const task = this.#run(title, needs, work);
    task.catch((error) => this.#abort.abort(error));
    this.#all.push(task);
    return task;
  }

  /** Waits until every step has ended; throws the first failure. */
  async finish() {
    await Promise.allSettled(this.#all);
    this.#progress.stop();
    this.#abort.signal.throwIfAborted();
  }

  /**
   * @template {Promise<unknown>[] | []} Needs
   * @template {StepResult} Result
   * @param {string} title
   * @param {Needs} needs
   * @param {(context: StepContext, ...needs: {[K in keyof Needs]: Awaited<Needs[K]>}) => Promise<Result>} work
   */
  async #run(title, needs, work) {
    const { signal } = this.#abort;
    const needed = await Promise.all(needs);
    signal.throwIfAborted();
    const step = this.#progress.begin(title);
    try {
      const result = await work({ signal, onLine: step.onLine }, ...needed);
      step.end(
        result.made ? '✓' : '–',
        [result.made ? '' : 'already done', result.note ?? ''].filter(Boolean).join(', '),
      );
      return result;
    } catch (error) {
      step.end('✗', signal.aborted ? 'stopped' : 'failed');
      throw error;
    }
  }
}
