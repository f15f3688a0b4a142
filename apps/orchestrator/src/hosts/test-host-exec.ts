/** A command of the test host: a plain local process in its own group, its output kept as a frame log as a real host does. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { AppError, encodeFrame, frameType } from '@fuse/contract';
import type { HostExec, StartExec } from '@fuse/host-protocol';

const EXEC_FAILED = new Set(['ENOENT', 'EACCES', 'ENOTDIR']);

export interface ExecPlace {
  id: string;
  /** Stands for the guest's root. */
  root: string;
  env: Record<string, string>;
  stdin: Uint8Array | undefined;
}

export class TestHostExec {
  readonly id: string;
  readonly frames: Buffer[] = [];
  readonly stdout: Buffer[] = [];
  readonly stderr: Buffer[] = [];
  #logBytes = 0;
  #truncated = false;
  #state: HostExec = {
    id: '',
    state: 'running',
    argv: [],
    stdin_open: false,
    created_at: new Date().toISOString(),
    log_bytes: 0,
    log_truncated: false,
  };
  #waiters: (() => void)[] = [];
  readonly #child: ChildProcess;
  readonly #maxLogBytes: number;

  private constructor(id: string, child: ChildProcess, maxLogBytes: number) {
    this.id = id;
    this.#child = child;
    this.#maxLogBytes = maxLogBytes;
  }

  static async start(place: ExecPlace, spec: StartExec): Promise<TestHostExec> {
    const cwd = `${place.root}${spec.cwd ?? '/workspace'}`;
    await mkdir(cwd, { recursive: true });
    const [program = '', ...args] = spec.argv;
    const child = spawn(program, args, {
      cwd,
      detached: true,
      env: { PATH: process.env.PATH, HOME: cwd, ...place.env, ...spec.env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const exec = new TestHostExec(place.id, child, spec.max_log_bytes);
    const startedAt = performance.now();
    await once(child, 'spawn').catch((error: NodeJS.ErrnoException) => {
      if (!EXEC_FAILED.has(error.code ?? '')) throw error;
      throw new AppError('invalid_argument', `${program}: ${error.message}`, { details: { reason: 'exec_failed' } });
    });
    child.stdin?.on('error', () => {}); // it need not read it
    child.stdin?.end(place.stdin ?? Buffer.alloc(0));
    exec.#watch(spec, startedAt);
    return exec;
  }

  #watch(spec: StartExec, startedAt: number): void {
    const child = this.#child;
    let timedOut = false;
    const timer =
      spec.timeout_ms > 0
        ? setTimeout(() => {
            timedOut = true;
            this.kill();
          }, spec.timeout_ms)
        : undefined;
    child.stdout?.on('data', (bytes: Buffer) => this.#take(frameType.stdout, this.stdout, bytes));
    child.stderr?.on('data', (bytes: Buffer) => this.#take(frameType.stderr, this.stderr, bytes));
    child.once('exit', (code, signal) => {
      clearTimeout(timer);
      // What it printed is in the pipes; a child that it left behind may hold them for ever.
      setTimeout(() => {
        if (this.#state.state !== 'running') return;
        const exit = {
          exit_code: code ?? 137,
          ...(signal === null ? {} : { signal }),
          timed_out: timedOut,
          oom_killed: false,
          stdout_bytes: total(this.stdout),
          stderr_bytes: total(this.stderr),
          duration_ms: performance.now() - startedAt,
        };
        this.#append(frameType.exit, Buffer.from(JSON.stringify(exit)));
        this.#end({ ...this.#state, state: 'exited', exit });
      }, 20);
    });
  }

  #take(type: number, kept: Buffer[], bytes: Buffer): void {
    kept.push(bytes);
    if (this.#logBytes + bytes.length > this.#maxLogBytes) this.#truncated = true;
    else this.#append(type, bytes);
  }

  #append(type: number, payload: Buffer): void {
    const frame = Buffer.from(encodeFrame(type, payload));
    this.frames.push(frame);
    this.#logBytes += frame.length;
    this.#wake();
  }

  #end(state: HostExec): void {
    this.#state = state;
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  get status(): HostExec {
    return { ...this.#state, id: this.id, log_bytes: this.#logBytes, log_truncated: this.#truncated };
  }

  /** At the next change, or after `ms`. */
  async changed(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#waiters.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Stands still while its VM is paused. */
  freeze(frozen: boolean): void {
    this.#signal(frozen ? 'SIGSTOP' : 'SIGCONT');
  }

  kill(): void {
    this.#signal('SIGKILL');
  }

  #signal(signal: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
    const { pid } = this.#child;
    if (pid === undefined || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // gone just now
    }
  }

  /** The VM died under it. */
  lose(why: string): void {
    if (this.#state.state === 'running') this.#end({ ...this.#state, state: 'lost', error: why });
    this.kill();
  }
}

export const total = (chunks: Buffer[]): number => chunks.reduce((sum, chunk) => sum + chunk.length, 0);
