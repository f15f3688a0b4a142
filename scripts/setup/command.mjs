/** Child processes of the set-up: output is read line by line, its end is kept to explain a failure. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const TAIL_LINES = 60;

/** A failure that the user can do something about: `message` says what, `hint` says what next. */
export class SetupError extends Error {
  /** @param {string} message @param {{hint?: string, cause?: unknown}} [options] */
  constructor(message, { hint, cause } = {}) {
    super(message, { cause });
    this.name = 'SetupError';
    this.hint = hint;
  }
}

/**
 * @typedef {object} RunOptions
 * @property {string} [cwd]
 * @property {Record<string, string | undefined>} [env]  beside what this process has
 * @property {AbortSignal} [signal]  ends the program and all that it started; without one it is not even reached by Ctrl-C
 * @property {(line: string) => void} [onLine]
 * @property {(line: string) => boolean} [isNoise]  lines that tell a person nothing
 */

/**
 * Runs a program to its end and answers its stdout.
 * @param {string[]} argv
 * @param {RunOptions} [options]
 * @returns {Promise<string>}
 */
export function run(argv, { cwd, env, signal, onLine, isNoise } = {}) {
  const [program, ...args] = argv;
  if (program === undefined) throw new TypeError('run needs a program');
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    /** @type {string[]} */
    const tail = [];
    /** @type {string[]} */
    const output = [];
    const onText = (/** @type {string} */ line) => {
      if (isNoise?.(line) === true) return;
      tail.push(line);
      if (tail.length > TAIL_LINES) tail.shift();
      onLine?.(line);
    };
    createInterface({ input: child.stderr }).on('line', onText);
    createInterface({ input: child.stdout }).on('line', (line) => {
      output.push(line);
      onText(line);
    });
    const end = () => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGTERM');
    };
    signal?.addEventListener('abort', end, { once: true });
    if (signal?.aborted) end();
    child.once('error', (cause) => {
      signal?.removeEventListener('abort', end);
      reject(new SetupError(`cannot start ${program}: ${cause.message}`, { cause }));
    });
    child.once('close', (code, killedBy) => {
      signal?.removeEventListener('abort', end);
      if (signal?.aborted) reject(signal.reason);
      else if (code === 0) resolve(output.join('\n'));
      else
        reject(new SetupError(`${tail.join('\n')}\n${shortened(argv)} ended with ${killedBy ?? `exit code ${code}`}`));
    });
  });
}

/** @param {string[]} argv */
const shortened = (argv) => {
  const line = argv.join(' ').replaceAll(/\s+/g, ' ');
  return line.length > 160 ? `${line.slice(0, 160)}…` : line;
};

/**
 * stdout of a program, or undefined when it is not there or fails.
 * @param {string[]} argv
 * @returns {Promise<string | undefined>}
 */
export async function tryRun(argv) {
  try {
    return await run(argv);
  } catch {
    return undefined;
  }
}
