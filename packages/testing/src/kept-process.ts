/**
 * A server that can not outlive the test run. A keeper (a shell in a session of its own, so that Ctrl-C passes it by) starts the server and
 * reads a pipe whose other end only this process holds. The pipe ends when we dispose, exit, or are killed in any way; then
 * the keeper stops the server and removes its directory. The same happens when the server dies by itself.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { open, readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const keeper = `
directory=$1 signal=$2; shift 2
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(
  read -r _ <&3
  kill -s "$signal" $server
  tries=0
  while kill -0 $server && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL $server
) 2>/dev/null &
watcher=$!
wait $server
code=$?
kill $watcher 2>/dev/null
rm -rf -- "$directory"
exit $code
`;

export interface KeptProcessOptions {
  argv: readonly string[];
  /** Belongs to the server from now on: removed when it ends. Its output is in `server.log` there. */
  directory: string;
  stopSignal: 'TERM' | 'INT';
  env?: NodeJS.ProcessEnv;
}

export class KeptProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  readonly #logPath: string;
  #running = true;

  private constructor(child: ChildProcess, logPath: string) {
    this.#child = child;
    this.#logPath = logPath;
    this.#ended = new Promise((resolve) => {
      const end = () => {
        this.#running = false;
        resolve();
      };
      child.once('exit', end);
      child.once('error', end);
    });
  }

  static async start({ argv, directory, stopSignal, env }: KeptProcessOptions): Promise<KeptProcess> {
    const logPath = join(directory, 'server.log');
    const log = await open(logPath, 'a');
    try {
      const child = spawn('/bin/sh', ['-c', keeper, 'keeper', directory, stopSignal, ...argv], {
        detached: true,
        cwd: directory,
        stdio: ['pipe', log.fd, log.fd],
        ...(env === undefined ? {} : { env }),
      });
      child.unref();
      (child.stdin as Socket | null)?.unref(); // a pipe of a child is a Socket; it must not hold the event loop
      return new KeptProcess(child, logPath);
    } finally {
      await log.close();
    }
  }

  /** Polls `ready` until it answers true; rejects with the end of the server's log when the server ends or time is up first. */
  async whenReady(what: string, ready: () => Promise<boolean>, timeoutMs = 30_000): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    let log = '';
    while (this.#running && performance.now() < deadline) {
      log = await readFile(this.#logPath, 'utf8').catch(() => log);
      if (await ready()) return;
      await delay(20);
    }
    const reason = this.#running ? `was not ready after ${timeoutMs} ms` : 'ended at once';
    await this[Symbol.asyncDispose]();
    throw new Error(`${what} ${reason}; its log ends:\n${log.slice(-2_000)}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.ref();
    this.#child.stdin?.end();
    await this.#ended;
  }
}
