/**
 * A local stack of a test's own: the real process, real VMs, a FUSE_HOME of its own that shares only what is immutable (assets) or
 * rebuilt when damaged (templates) with the user's. Everything is gone after `dispose`, which fails when it is not.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readlink, rm, symlink } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { FuseClient } from '@fuse/sdk';
import { freePort, runningProcesses } from '@fuse/testing';

const main = fileURLToPath(new URL('../../../apps/local/dist/main.js', import.meta.url));
const cli = fileURLToPath(new URL('../../../apps/cli/bin/fuse.js', import.meta.url));
const userHome = process.env.FUSE_HOME ?? join(homedir(), '.fuse');
const START_DEADLINE_MS = 120_000;

/** What tests read of an answer, none of it checked before. */
export interface Answer {
  id: string;
  state: string;
  error: { code: string; message: string; hint: string; details: Record<string, string> };
}

export class LocalStack implements AsyncDisposable {
  readonly home: string;
  readonly port: number;
  client!: FuseClient; // set by start(), which every constructor call is followed by
  token = '';
  #process: ChildProcess | undefined;
  readonly #env: Record<string, string>;

  private constructor(home: string, port: number, env: Record<string, string>) {
    this.home = home;
    this.port = port;
    this.#env = env;
  }

  static async up(env: Record<string, string> = {}): Promise<LocalStack> {
    const home = await mkdtemp(join(tmpdir(), 'fuse-e2e-'));
    await mkdir(join(userHome, 'host', 'templates'), { recursive: true });
    await mkdir(join(home, 'host'));
    await symlink(join(userHome, 'assets'), join(home, 'assets'));
    await symlink(join(userHome, 'host', 'templates'), join(home, 'host', 'templates'));
    const stack = new LocalStack(home, await freePort(), env);
    await stack.start();
    return stack;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get environmentVariables(): Record<string, string> {
    // Set-up has made those that most start from.
    return { FUSE_HOME: this.home, FUSE_PORT: String(this.port), FUSE_TEMPLATES: 'none', ...this.#env };
  }

  get pid(): number {
    const pid = this.#process?.pid;
    if (pid === undefined) throw new Error('the local stack is not running');
    return pid;
  }

  /** Starts the service process and waits until it is ready. */
  async start(): Promise<void> {
    const log = openSync(join(this.home, 'service.log'), 'a');
    const child = spawn(process.execPath, [main], {
      env: { ...process.env, ...this.environmentVariables },
      stdio: ['ignore', log, log],
    });
    this.#process = child;
    const deadline = Date.now() + START_DEADLINE_MS;
    for (;;) {
      if (child.exitCode !== null) throw new Error(`the local stack ended at start:\n${await this.log()}`);
      const ready = await fetch(`${this.url}/ready`).catch(() => undefined);
      if (ready?.ok) break;
      if (Date.now() > deadline) throw new Error(`the local stack is not ready:\n${await this.log()}`);
      await delay(50);
    }
    this.token = (await readFile(join(this.home, 'token'), 'utf8')).trim();
    this.client = new FuseClient({ baseUrl: this.url, token: this.token });
  }

  async log(): Promise<string> {
    return (await readFile(join(this.home, 'service.log'), 'utf8')).slice(-8_000);
  }

  /** Ends the service process: SIGKILL is a crash, SIGTERM a restart; VMs live on. */
  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill(signal);
    await gone;
    this.#process = undefined;
  }

  /** Processes of VMs of this stack, whoever started them. */
  async vmmPids(): Promise<number[]> {
    const all = await runningProcesses();
    const inHome = await Promise.all(
      all.map(async (each) => ({
        pid: each.pid,
        ours: each.command.includes('qemu-system') && (await namesHome(each.pid, this.home)),
      })),
    );
    return inHome.filter((each) => each.ours).map((each) => each.pid);
  }

  async request(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    headers.set('Authorization', `Bearer ${this.token}`);
    return await fetch(`${this.url}${path}`, { ...init, headers });
  }

  async post(
    path: string,
    body: unknown,
    headers: Record<string, string> = {},
  ): Promise<{ status: number; body: Answer }> {
    const response = await this.request(path, {
      method: 'POST',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      headers,
    });
    const text = await response.text();
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) };
  }

  /** The real command line, with this stack as its target. */
  async fuse(
    args: readonly string[],
    stdin?: string,
  ): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const child = spawn(process.execPath, [cli, ...args], {
      env: { ...process.env, ...this.environmentVariables, FUSE_URL: this.url, FUSE_TOKEN: this.token },
      stdio: ['pipe', 'pipe', 'pipe'],
      cwd: this.home,
    });
    child.stdin.end(stdin ?? '');
    const text = async (stream: NodeJS.ReadableStream) => {
      let all = '';
      for await (const chunk of stream) all += chunk;
      return all;
    };
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
    return { code: child.exitCode, stdout, stderr };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process !== undefined && this.#process.exitCode === null) {
      const gone = once(this.#process, 'exit');
      this.#process.kill('SIGINT'); // as Ctrl-C in the foreground: destroys VMs too
      await gone;
    }
    const left = await this.vmmPids();
    const log = await this.log();
    await rm(this.home, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`VMs were left running: ${left.join(', ')}\n${log}`);
  }
}

async function namesHome(pid: number, home: string): Promise<boolean> {
  const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => ''); // it ended meanwhile
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return cwd.startsWith(home) || command.includes(home);
}

/** Of what `vmmPids` found: none is a failure of the test, and never our own process group. */
export function signalVmm(pid: number | undefined, signal: 'SIGKILL' | 'SIGSTOP'): void {
  if (pid === undefined) throw new Error('no VMM is running');
  process.kill(pid, signal);
}
