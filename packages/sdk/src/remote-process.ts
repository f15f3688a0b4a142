import {
  Exec,
  type ExecExit,
  type ExecRequest,
  type ExecResult,
  type SignalName,
  type TerminalSize,
} from '@fuse/contract';
import { base64FromBytes } from './base64.ts';
import { environmentPath } from './environment-path.ts';
import { FuseError, FuseLogGapError } from './errors.ts';
import {
  type ExecRef,
  execPath,
  execResultOf,
  getExec,
  killQuietly,
  postStdin,
  type StdinPiece,
  waitForExec,
} from './exec-calls.ts';
import { execLog, type LogPosition } from './exec-log.ts';
import { execStdin } from './exec-stdin.ts';
import { type KillOptions, signalCall } from './execs.ts';
import type { CallOptions } from './run-outputs.ts';
import { splitLog } from './split-log.ts';
import type { Transport } from './transport.ts';

export interface SpawnOptions {
  /** Chosen by the caller; an exec of that id that exists already is taken up from its beginning, not started again. */
  id?: string;
  /** Exactly one of the two; `shell` is run as `sh -lc`. */
  cmd?: string[];
  shell?: string;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  /** Its whole process tree is killed after this. Default: none. */
  timeoutMs?: number;
  /** `pipe` (default): the process's `stdin`. `ignore`: empty. Or all of it, here. */
  stdin?: 'pipe' | 'ignore' | string | Uint8Array;
  /** `ignore`: not handed over; it is in the log all the same. */
  stdout?: 'pipe' | 'ignore';
  stderr?: 'pipe' | 'ignore';
  /** Kill what it left running when it ends. */
  killOnExit?: boolean;
  maxLogBytes?: number;
  /** In a terminal of this size: stdout and stderr are one. `attach` joins it under its id. */
  tty?: TerminalSize;
}

export interface ProcessOptions {
  /** How long to try to get further after a lost connection. Default 60 s. */
  patienceMs?: number;
  /** Output that is not kept any more (more than `max_log_bytes` unread). Without it both streams fail with `FuseLogGapError`. */
  onGap?: (gap: { from: number; to: number }) => void;
}

export interface SpawnCallOptions extends ProcessOptions {
  /** Aborted, the process tree is killed, and streams and `exit` fail with its reason. */
  signal?: AbortSignal;
}

export interface ReattachOptions extends ProcessOptions, LogPosition {
  stdout?: 'pipe' | 'ignore';
  stderr?: 'pipe' | 'ignore';
  /** Aborted, this process object ends; the command runs on. */
  signal?: AbortSignal;
}

interface Start {
  exec: ExecRef;
  position: LogPosition;
  /** The answer that started it carries its log. */
  begun?: Response;
  stdin: { offset: number | undefined } | undefined;
  ignore: { stdout: boolean; stderr: boolean };
  /** Killed on abort and on dispose. */
  owned: boolean;
  options: ProcessOptions & { signal?: AbortSignal };
}

/**
 * A command that runs in an environment, as Node's ChildProcess, over plain HTTP. Lost connections are made again without gap or repeat; a stream that
 * ends has ended. What is not read holds the command back, see split-log.ts for the rule. `FuseExecLostError` when its VM is lost.
 */
export class RemoteProcess implements AsyncDisposable {
  /** The exec's. */
  readonly id: string;
  readonly environmentId: string;
  /** Rejects with FuseApiError `details.reason: stdin_closed` once the command takes no more. */
  readonly stdin: WritableStream<Uint8Array>;
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  readonly exit: Promise<ExecExit>;
  readonly #transport: Transport;
  readonly #exec: ExecRef;
  readonly #owned: boolean;
  readonly #following = new AbortController();
  #ended = false;

  constructor(transport: Transport, start: Start) {
    this.#transport = transport;
    this.#exec = start.exec;
    this.#owned = start.owned;
    this.id = start.exec.execId;
    this.environmentId = start.exec.environmentId;
    const { signal, patienceMs } = start.options;
    const retrying = { random: transport.config.random, signal: this.#following.signal, patienceMs };
    this.stdin =
      start.stdin === undefined
        ? closedStdin()
        : execStdin((piece: StdinPiece, sent) => postStdin(transport, start.exec, piece, sent), {
            ...retrying,
            offset: start.stdin.offset,
          });
    let { begun } = start;
    const deferred: { resolve?: (exit: ExecExit) => void; reject?: (cause: unknown) => void } = {};
    this.exit = new Promise<ExecExit>((resolve, reject) => Object.assign(deferred, { resolve, reject }));
    this.exit.catch(() => {}); // whoever asks hears of it
    const ended = (exit: ExecExit) => {
      this.#ended = true;
      deferred.resolve?.(exit);
    };
    const log = splitLog({
      log: (offset) => {
        const first = offset === undefined && begun !== undefined ? { begun } : {};
        begun = undefined;
        return execLog(transport, start.exec, {
          ...(offset === undefined ? start.position : { offset }),
          ...first,
          follow: true,
          signal: this.#following.signal,
          ...(patienceMs === undefined ? {} : { patienceMs }),
        });
      },
      onExit: ended,
      onGap: start.options.onGap ?? ((gap) => void this.#throwGap(gap)),
      hasEnded: async () => (await getExec(transport, start.exec, { signal: this.#following.signal })).exit,
      ignore: start.ignore,
    });
    this.stdout = log.stdout;
    this.stderr = log.stderr;
    const onAbort = () => {
      this.#following.abort(signal?.reason);
      if (this.#owned && !this.#ended) void killQuietly(transport, start.exec); // never rejects
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted) onAbort();
    void log.done
      .catch((error: unknown) => deferred.reject?.(error))
      .finally(() => signal?.removeEventListener('abort', onAbort));
  }

  /** Default SIGTERM, to its process group; nothing happens when it has ended. */
  kill(name: SignalName = 'SIGTERM', { tree, signal }: KillOptions = {}): Promise<void> {
    return this.#transport.none(signalCall(`${execPath(this.#exec)}/signal`, name, { tree, signal }));
  }

  /** Once it has ended: exit and the head of both streams, which need not be read for it. */
  async result(options: CallOptions & { encoding?: 'utf8' | 'base64' } = {}): Promise<ExecResult> {
    const { signal } = options;
    await waitForExec(this.#transport, this.#exec, signal === undefined ? {} : { signal });
    return await execResultOf(this.#transport, this.#exec, options);
  }

  /** Ends this object and its streams; the command runs on, `process()` takes it up again. */
  detach(): void {
    this.#following.abort(new FuseError(`detached from exec ${this.id}`));
  }

  /** Kills the process tree if it was spawned here and still runs. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#owned && !this.#ended) await killQuietly(this.#transport, this.#exec);
    this.detach();
  }

  #throwGap(gap: { from: number; to: number }): never {
    throw new FuseLogGapError(this.id, gap);
  }
}

export async function spawnProcess(
  transport: Transport,
  environmentId: string,
  spawn: SpawnOptions,
  options: SpawnCallOptions = {},
): Promise<RemoteProcess> {
  if ((spawn.cmd === undefined) === (spawn.shell === undefined))
    throw new FuseError('exactly one of cmd and shell is required');
  const { signal } = options;
  signal?.throwIfAborted();
  const exec: ExecRef = { environmentId, execId: spawn.id ?? crypto.randomUUID() };
  const { stdin = 'pipe' } = spawn;
  const path = `${environmentPath(environmentId)}/execs`;
  try {
    const begun = await transport.open({
      method: 'POST',
      path,
      query: { stream: 'frames' },
      json: requestOf(spawn, exec.execId),
      // It is started at most once, however often it is asked for.
      repeat: 'freely',
      timeoutMs: null,
      signal,
    });
    return new RemoteProcess(transport, {
      exec,
      position: { offset: 0 },
      begun,
      stdin: stdin === 'pipe' ? { offset: 0 } : undefined,
      ignore: { stdout: spawn.stdout === 'ignore', stderr: spawn.stderr === 'ignore' },
      owned: true,
      options,
    });
  } catch (error) {
    if (signal?.aborted) void killQuietly(transport, exec); // never rejects
    throw error;
  }
}

/** Takes up an exec that exists, running or not; rejects when there is none. */
export async function reattachProcess(
  transport: Transport,
  exec: ExecRef,
  options: ReattachOptions = {},
): Promise<RemoteProcess> {
  const { offset, tail, signal, stdout, stderr } = options;
  const { stdin_open } = await transport.json(Exec, {
    method: 'GET',
    path: execPath(exec),
    repeat: 'freely',
    signal,
  });
  return new RemoteProcess(transport, {
    exec,
    position: tail === undefined ? { offset: offset ?? 0 } : { tail },
    stdin: stdin_open ? { offset: undefined } : undefined,
    ignore: { stdout: stdout === 'ignore', stderr: stderr === 'ignore' },
    owned: false,
    options,
  });
}

function requestOf(spawn: SpawnOptions, id: string): ExecRequest {
  const { stdin = 'pipe', timeoutMs, killOnExit, maxLogBytes, cmd, shell, env, cwd, user, tty } = spawn;
  return {
    id,
    cmd,
    shell,
    env,
    cwd,
    user,
    tty,
    timeout_ms: timeoutMs,
    kill_on_exit: killOnExit,
    max_log_bytes: maxLogBytes,
    ...(stdin === 'pipe' ? { stdin_open: true } : stdin === 'ignore' ? {} : givenStdin(stdin)),
  };
}

const givenStdin = (stdin: string | Uint8Array): Pick<ExecRequest, 'stdin' | 'stdin_encoding'> =>
  typeof stdin === 'string' ? { stdin } : { stdin: base64FromBytes(stdin), stdin_encoding: 'base64' };

const closedStdin = (): WritableStream<Uint8Array> =>
  new WritableStream({ start: (controller) => controller.error(new FuseError('stdin is not open')) });
