import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** Between the polite signal and the one that cannot be ignored. */
const GRACE_MS = 10_000;

/**
 * Runs a program with its output shown, or its stdout given line by line to `onLine`. At the deadline, or when aborted, it is ended.
 * @param {string[]} argv
 * @param {{cwd: string, env?: Record<string, string | undefined>, signal: AbortSignal, deadlineMs: number, onLine?: (line: string) => void}} options
 * @returns {Promise<number>} the exit code; 1 when a signal ended it
 */
export function show([program = '', ...args], { cwd, env, signal, deadlineMs, onLine }) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ['ignore', onLine === undefined ? 'inherit' : 'pipe', 'inherit'],
    });
    if (onLine !== undefined && child.stdout !== null) createInterface({ input: child.stdout }).on('line', onLine);
    /** @type {NodeJS.Timeout | undefined} */
    let kill;
    const stop = () => {
      child.kill('SIGTERM');
      kill = setTimeout(() => child.kill('SIGKILL'), GRACE_MS);
    };
    const deadline = setTimeout(() => {
      process.stdout.write(`${program} ran longer than ${deadlineMs / 60_000} minutes and is ended\n`);
      stop();
    }, deadlineMs);
    signal.addEventListener('abort', stop, { once: true });
    const done = () => {
      clearTimeout(deadline);
      clearTimeout(kill);
      signal.removeEventListener('abort', stop);
    };
    child.once('error', (error) => {
      done();
      reject(error);
    });
    child.once('close', (code) => {
      done();
      if (signal.aborted) reject(signal.reason);
      else resolve(code ?? 1);
    });
  });
}
