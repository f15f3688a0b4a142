/** The host agent as a program of its own, which a test can kill. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { TestHost } from './test-host.ts';

export const PROGRAM_PATH = fileURLToPath(new URL('../../bin/fuse-host-agent.js', import.meta.url));

export class TestProgram implements AsyncDisposable {
  readonly #host: TestHost;
  #child: ChildProcess | undefined;

  /** On the data directory of a host whose own agent is stopped. */
  constructor(host: TestHost) {
    this.#host = host;
  }

  async start(): Promise<ChildProcess> {
    const { environment } = this.#host;
    const started = spawn(process.execPath, [PROGRAM_PATH], { env: environment, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = started;
    let text = '';
    for await (const chunk of started.stdout) {
      text += chunk;
      const url = /"url":"([^"]+)"/.exec(text)?.[1];
      if (url === undefined) continue;
      started.stdout.resume();
      this.#host.useUrl(url);
      return started;
    }
    throw new Error(`the program ended: ${text}`);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }
}
