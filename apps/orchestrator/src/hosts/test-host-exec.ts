/** A command of the test host: a plain local process in its own group, its output kept as a frame log as a real host does. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { AppError, type ExecStdin, frameType, type TerminalSize } from '@fuse/contract';
import type { GuestSignal, HostExec, StartExec } from '@fuse/host-protocol';
import { TestHostLog } from './test-host-log.ts';

const EXEC_FAILED = new Set(['ENOENT', 'EACCES', 'ENOTDIR']);
/** How long the end of the pipes is waited for once a command has ended. */
const HELD_PIPE_MS = 200;
/** Of each stream, for results. */
const MAX_HEAD_BYTES = 4 * 1_048_576;

export interface ExecPlace {
  id: string;
  /** Stands for the guest's root. */
  root: string;
  env: Record<string, string>;
  stdin: Uint8Array | undefined;
}

export class TestHostExec {
  readonly id: string;
  readonly log: TestHostLog;
  readonly stdout: Buffer[] = [];
  readonly stderr: Buffer[] = [];
  readonly viewers = new Map<object, TerminalSize>();
  readonly #bytes = { stdout: 0, stderr: 0 };
  readonly #child: ChildProcess;
  #state: HostExec;
  #size: TerminalSize | undefined;
  #stdinBytes = 0;
  #stdinClosed = false;
  #writing: Promise<unknown> = Promise.resolve();
  #holding: NodeJS.Timeout | undefined;

  private constructor(id: string, child: ChildProcess, spec: StartExec) {
    this.id = id;
    this.#child = child;
    this.log = new TestHostLog(spec);
    this.#size = spec.tty;
    this.#state = {
      id,
      state: 'running',
      argv: spec.argv,
      ...(spec.cwd === undefined ? {} : { cwd: spec.cwd }),
      ...(spec.user === undefined ? {} : { user: spec.user }),
      stdin_open: false,
      created_at: new Date().toISOString(),
      log_bytes: 0,
      log_truncated: false,
    };
  }

  static async start(place: ExecPlace, spec: StartExec): Promise<TestHostExec> {
    const cwd = `${place.root}${spec.cwd ?? '/workspace'}`;
    await mkdir(cwd, { recursive: true });
    const [program = '', ...args] = spec.argv[0] === '$SHELL' ? ['sh'] : spec.argv;
    const child = spawn(program, args, {
      cwd,
      detached: true,
      env: { PATH: process.env.PATH, HOME: cwd, ...place.env, ...spec.env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const exec = new TestHostExec(place.id, child, spec);
    const startedAt = performance.now();
    await once(child, 'spawn').catch((error: NodeJS.ErrnoException) => {
      if (!EXEC_FAILED.has(error.code ?? '')) throw error;
      throw new AppError('invalid_argument', `${program}: ${error.message}`, { details: { reason: 'exec_failed' } });
    });
    child.stdin?.on('error', () => {}); // it need not read it
    const given = spec.stdin_base64 === undefined ? place.stdin : Buffer.from(spec.stdin_base64, 'base64');
    exec.#stdinBytes = given?.length ?? 0;
    if (given !== undefined) child.stdin?.write(given);
    if (spec.stdin_open !== true && spec.tty === undefined) exec.#closeStdin();
    exec.#watch(spec, startedAt);
    return exec;
  }

  #watch(spec: StartExec, startedAt: number): void {
    const child = this.#child;
    let timedOut = false;
    const timer =
      spec.timeout_ms > 0
        ? setTimeout(
            () => {
              timedOut = true;
              this.kill();
            },
            Math.min(spec.timeout_ms, 2_147_483_647),
          )
        : undefined;
    const { stdout, stderr } = child;
    stdout?.on('data', (bytes: Buffer) => this.#take('stdout', bytes));
    stderr?.on('data', (bytes: Buffer) => this.#take(spec.tty === undefined ? 'stderr' : 'stdout', bytes));
    this.log.onHold = (held) => {
      clearInterval(this.#holding);
      if (held) this.#holding = setInterval(() => this.log.settle(), 500);
      for (const stream of [stdout, stderr]) held ? stream?.pause() : stream?.resume();
    };
    child.once('exit', (code, signal) => {
      clearTimeout(timer);
      const finish = () => {
        if (this.#state.state !== 'running') return;
        if (this.#holding !== undefined && stdout?.isPaused()) return void setTimeout(finish, 20); // held: the rest is in the pipes
        const exit = {
          exit_code: code ?? 137,
          ...(signal === null ? {} : { signal }),
          timed_out: timedOut,
          oom_killed: false,
          stdout_bytes: this.#bytes.stdout,
          stderr_bytes: this.#bytes.stderr,
          duration_ms: performance.now() - startedAt,
        };
        this.log.append(frameType.exit, Buffer.from(JSON.stringify(exit)));
        this.#end({ ...this.#state, state: 'exited', exit });
      };
      // What it printed is in the pipes; a child that it left behind may hold them for ever.
      const late = setTimeout(finish, HELD_PIPE_MS);
      child.once('close', () => {
        clearTimeout(late);
        finish();
      });
    });
  }

  #take(stream: 'stdout' | 'stderr', bytes: Buffer): void {
    if (this.#bytes[stream] < MAX_HEAD_BYTES) this[stream].push(bytes);
    this.#bytes[stream] += bytes.length;
    this.log.append(frameType[stream], bytes);
  }

  #end(state: HostExec): void {
    clearInterval(this.#holding);
    this.#holding = undefined;
    this.#state = { ...state, ended_at: new Date().toISOString() };
    this.#closeStdin();
    this.log.wake();
  }

  get status(): HostExec {
    const { gap, end, truncated } = this.log;
    const size = this.size;
    return {
      ...this.#state,
      ...(size === undefined ? {} : { tty: { ...size, viewers: this.viewers.size } }),
      stdin_open: !this.#stdinClosed,
      log_bytes: end,
      ...(gap === undefined ? {} : { log_gap: gap }),
      log_truncated: truncated,
    };
  }

  /** Counts of everything that it wrote. */
  get bytes(): { stdout: number; stderr: number } {
    return this.#bytes;
  }

  get frames(): Buffer[] {
    return this.log.segments.map(({ bytes }) => bytes);
  }

  /** What every viewer can show. */
  get size(): TerminalSize | undefined {
    if (this.#size === undefined || this.viewers.size === 0) return this.#size;
    const sizes = [...this.viewers.values()];
    this.#size = { rows: Math.min(...sizes.map(({ rows }) => rows)), cols: Math.min(...sizes.map(({ cols }) => cols)) };
    return this.#size;
  }

  get stdinState(): ExecStdin {
    return { stdin_bytes: this.#stdinBytes, closed: this.#stdinClosed };
  }

  changed(ms: number): Promise<void> {
    return this.log.changed(ms);
  }

  /** One writer after the other, each piece as it comes. */
  writeStdin(
    pieces: AsyncIterable<Uint8Array>,
    { offset, end }: { offset?: number; end: boolean },
  ): Promise<ExecStdin> {
    const written = this.#writing.then(async () => {
      let at = offset ?? this.#stdinBytes;
      if (at > this.#stdinBytes)
        throw new AppError('conflict', `stdin has ${this.#stdinBytes} bytes`, {
          details: { stdin_bytes: String(this.#stdinBytes) },
        });
      for await (const piece of pieces) {
        const fresh = piece.subarray(Math.min(piece.length, this.#stdinBytes - at));
        at += piece.length;
        if (fresh.length > 0) await this.#write(fresh);
      }
      if (end) this.#closeStdin();
      return this.stdinState;
    });
    this.#writing = written.catch(() => {});
    return written;
  }

  async #write(bytes: Uint8Array): Promise<void> {
    const { stdin } = this.#child;
    if (this.#stdinClosed || stdin === null || !stdin.writable)
      throw new AppError('conflict', 'its stdin is closed', { details: { reason: 'stdin_closed' } });
    this.#stdinBytes += bytes.length;
    await new Promise<void>((resolve) => stdin.write(bytes, () => resolve()));
  }

  #closeStdin(): void {
    this.#stdinClosed = true;
    this.#child.stdin?.end();
  }

  /** Stands still while its VM is paused. */
  freeze(frozen: boolean): void {
    this.#signal(frozen ? 'SIGSTOP' : 'SIGCONT');
  }

  kill(): void {
    this.#signal('SIGKILL');
  }

  signal({ signal }: GuestSignal): void {
    this.#signal(signal);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  #signal(signal: NodeJS.Signals): void {
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
