/**
 * The host agent's children are started by a small process of its own, the spawner (jailer/, `fuse-jailer serve`): fork() copies the page tables
 * of its caller, which takes 10 to 26 ms in a process that also holds an embedded database and under 1 ms in a small one. There is one
 * spawner a process, started when first needed and again when it was lost; the children do not depend on it, only the news of their end does.
 *
 * Both sides write a JSON object a line, on its stdin and stdout:
 *   to it:   {id, program, args, cwd, env, session, stdio, jail}   {kill: id}   {up: id}
 *   from it: {id, pid} or {id, failed: reason}, then {id, code, signal, stdout, stderr}
 *
 * Descriptors cannot be sent, so files are named and the spawner opens them. Its stdout ends when it is gone and whatever it was about to start
 * has become the program that it is to be, or is gone too.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import type { Jail } from './jail.ts';

const Report = z.union([
  z.object({ id: z.number(), pid: z.number().int().positive() }),
  z.object({ id: z.number(), failed: z.string() }),
  z.object({
    id: z.number(),
    code: z.number().nullable(),
    signal: z.string().nullable(),
    stdout: z.string(),
    stderr: z.string(),
  }),
]);

/** A tap is there already, and is opened with virtio-net headers. */
export type ChildStdio =
  | 'ignore'
  | 'pipe'
  | { path: string; flags: 'r' | 'a' }
  | { tap: { namespacePath: string; name: string } };

export interface ChildSpec {
  program: string;
  args: readonly string[];
  /** With a jail: in the jail. */
  cwd?: string;
  /** A jailed program has none. */
  env: Record<string, string>;
  /** A session of its own outlives spawner and host agent; anything else ends with them. */
  session: boolean;
  /** Descriptors from 0 on. Only stdout and stderr may be pipes. */
  stdio: readonly ChildStdio[];
  jail?: Jail | undefined;
}

export interface ChildEnd {
  code: number | null;
  signal: string | null;
  /** Of pipes: all of stdout (whoever writes more than 16 MiB is killed), the first 4 KiB of stderr. */
  stdout: string;
  stderr: string;
}

export interface StartedChild {
  pid: number;
  /** Rejects with SpawnerLost when nobody can tell any more. Waiting for it does not keep this process alive. */
  ended: Promise<ChildEnd>;
  kill(): void;
  /** A jailed one has started: its `readOnlyOpens` are over. Otherwise they are a minute after its start. */
  up(): void;
}

/** The child may be running, if it is a session, or have ended: whoever needs to know has to look. */
export class SpawnerLost extends Error {
  override readonly name = 'SpawnerLost';
}

export class Spawner implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #commands: Socket;
  readonly #reports: Socket;
  readonly #exited: Promise<unknown>;
  readonly #children = new Map<number, { started: Deferred<StartedChild>; ended: Deferred<ChildEnd> }>();
  readonly #held = new Set<Promise<unknown>>();
  readonly #onLost: () => void;
  #nextId = 1;
  #lost: SpawnerLost | undefined;

  constructor(program: string, onLost: () => void) {
    this.#onLost = onLost;
    this.#process = spawn(program, ['serve'], {
      detached: true, // signals to our process group are for us
      env: {},
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#exited = once(this.#process, 'exit').catch(() => {});
    this.#process.on('error', (cause) => this.#lose(cause));
    // Node makes these pipes of sockets, though its types do not say so.
    this.#commands = this.#process.stdin as Socket;
    this.#reports = this.#process.stdout as Socket;
    this.#commands.on('error', (cause) => this.#lose(cause));
    this.#reports.on('error', () => {}); // closing follows
    createInterface({ input: this.#reports })
      .on('line', (line) => this.#receive(Report.parse(JSON.parse(line))))
      .on('close', () => this.#lose());
    this.#process.unref();
    this.#commands.unref();
    this.#reports.unref();
  }

  get isLost(): boolean {
    return this.#lost !== undefined;
  }

  /** Rejects with the reason when the program cannot be started, and with SpawnerLost when nobody can tell. */
  async start(spec: ChildSpec): Promise<StartedChild> {
    if (this.#lost !== undefined) throw this.#lost;
    const id = this.#nextId++;
    const child = { started: deferred<StartedChild>(), ended: deferred<ChildEnd>() };
    this.#children.set(id, child);
    this.#send({ id, ...spec });
    return this.hold(child.started.promise);
  }

  /** Keeps this process alive, and the spawner at its post, while `work` goes on. */
  async hold<T>(work: Promise<T>): Promise<T> {
    this.#held.add(work);
    this.#reports.ref();
    try {
      return await work;
    } finally {
      this.#held.delete(work);
      if (this.#held.size === 0) this.#reports.unref();
    }
  }

  /** Lets what is held come to its end, then the spawner. Sessions run on. */
  async [Symbol.asyncDispose](): Promise<void> {
    while (this.#held.size > 0) await Promise.allSettled(this.#held);
    this.#lost ??= new SpawnerLost('the spawner was told to end');
    this.#commands.end();
    this.#process.ref();
    await this.#exited;
  }

  #send(message: object): void {
    this.#commands.write(`${JSON.stringify(message)}\n`);
  }

  #receive(report: z.infer<typeof Report>): void {
    const { id } = report;
    const child = this.#children.get(id);
    if (child === undefined) return;
    if ('pid' in report) {
      const tell = (message: object) => {
        if (this.#children.has(id)) this.#send(message);
      };
      child.started.resolve({
        pid: report.pid,
        ended: child.ended.promise,
        kill: () => tell({ kill: id }),
        up: () => tell({ up: id }),
      });
      return;
    }
    this.#children.delete(id);
    if ('failed' in report) child.started.reject(new Error(report.failed));
    else child.ended.resolve(report);
  }

  #lose(cause?: Error): void {
    if (this.#lost === undefined) {
      this.#lost = new SpawnerLost('the spawner has ended', { cause });
      this.#onLost();
    }
    for (const { started, ended } of this.#children.values()) {
      started.reject(this.#lost);
      ended.reject(this.#lost);
    }
    this.#children.clear();
  }
}

interface Deferred<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: Error) => void;
}

function deferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => {};
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  promise.catch(() => {}); // for whoever waits; perhaps nobody does
  return { promise, resolve, reject };
}
