/**
 * Says what is going on: a line when a step begins and when it ends, and in between a live line on a terminal, or a sign of life now
 * and then elsewhere, so that a long step never looks hung. Everything goes to stderr.
 */

/** A step that ends sooner is announced by its end alone. */
const ANNOUNCE_MS = 500;
const HEARTBEAT_MS = 15_000;
const REDRAW_MS = 200;
const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/** @typedef {{title: string, startedAt: number, lastLine: string, nextWordAt: number, announced: boolean}} Running */

export class Progress {
  /** @type {Set<Running>} */
  #running = new Set();
  #terminal = process.stderr.isTTY === true;
  #drawn = false;
  #frame = 0;
  #timer = setInterval(() => this.#tick(), REDRAW_MS).unref();

  /** @param {string} title @returns {{onLine: (line: string) => void, end: (mark: '✓' | '✗' | '–', note: string) => void}} */
  begin(title) {
    const startedAt = performance.now();
    /** @type {Running} */
    const step = { title, startedAt, lastLine: '', nextWordAt: startedAt + ANNOUNCE_MS, announced: false };
    this.#running.add(step);
    return {
      onLine: (line) => {
        step.lastLine = printable(line);
      },
      end: (mark, note) => {
        this.#running.delete(step);
        const took = `${seconds(performance.now() - startedAt)}${note && ', '}${note}`;
        this.say(`${mark} ${title.padEnd(16)} ${took}`);
      },
    };
  }

  /** @param {string} line */
  say(line) {
    this.#erase();
    process.stderr.write(`  ${line}\n`);
  }

  stop() {
    clearInterval(this.#timer);
    this.#erase();
  }

  #tick() {
    const now = performance.now();
    if (!this.#terminal) {
      for (const step of this.#running) if (now >= step.nextWordAt) this.#signOfLife(step, now);
      return;
    }
    this.#erase();
    if (this.#running.size === 0) return;
    const steps = [...this.#running].map((step) => `${step.title} ${seconds(now - step.startedAt)}`).join(' · ');
    const last = [...this.#running].at(-1)?.lastLine ?? '';
    const line = `  ${SPINNER[this.#frame++ % SPINNER.length]} ${steps}${last && `  ${last}`}`;
    process.stderr.write(line.slice(0, (process.stderr.columns || 80) - 1));
    this.#drawn = true;
  }

  /** @param {Running} step @param {number} now */
  #signOfLife(step, now) {
    const { title, startedAt, lastLine, announced } = step;
    this.say(
      `… ${title}${announced ? `: ${seconds(now - startedAt)}${lastLine && `, ${lastLine.slice(0, 90)}`}` : ''}`,
    );
    step.announced = true;
    step.nextWordAt = now + HEARTBEAT_MS;
  }

  #erase() {
    if (this.#drawn) process.stderr.write('\r\x1b[2K');
    this.#drawn = false;
  }
}

/** @param {number} ms */
export const seconds = (ms) => (ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`);

/** Output of other programs, without what would move the cursor. @param {string} line */
const printable = (line) =>
  [...line]
    .map((character) => (/\p{Cc}/u.test(character) ? ' ' : character))
    .join('')
    .trim();
