/** A process of a test that ends and is started again with what it had. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { readFile } from 'node:fs/promises';

export class Program implements AsyncDisposable {
  readonly #argv: string[];
  readonly #env: Record<string, string>;
  readonly #logPath: string;
  #child: ChildProcess | undefined;

  constructor(argv: string[], env: Record<string, string>, logPath: string) {
    this.#argv = argv;
    this.#env = env;
    this.#logPath = logPath;
  }

  start(): void {
    const log = openSync(this.#logPath, 'a');
    const [program = '', ...args] = this.#argv;
    const env = { PATH: process.env.PATH, ...this.#env };
    this.#child = spawn(program, args, { env, stdio: ['ignore', log, log] });
    closeSync(log);
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill(signal);
    await gone;
  }

  async log(): Promise<string> {
    return (await readFile(this.#logPath, 'utf8')).slice(-4_000);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end('SIGTERM');
  }
}
