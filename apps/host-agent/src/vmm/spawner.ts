/**
 * The host agent's children are started by a small process of its own, the spawner (bin/spawner.js): fork() copies the page tables of its
 * caller, which takes 10 to 26 ms in a process that also holds an embedded database and under 1 ms in a small one. There is one spawner
 * a process, started when first needed and again when it was lost; the children do not depend on it, only the news of their end does.
 *
 *   to it:   {id, program, args, cwd, env, session, stdio}   {kill: id}
 *   from it: {id, pid} or {id, failed: reason}, then {id, code, signal, stdout, stderr}
 *
 * Descriptors cannot be sent, so files are named and the spawner opens them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

const SCRIPT = fileURLToPath(new URL('../../bin/spawner.js', import.meta.url));

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

export type ChildStdio = 'ignore' | 'pipe' | { path: string; flags: 'r' | 'a' };

export interface ChildSpec {
  program: string;
  args: readonly string[];
  cwd?: string;
  env: Record<string, string>;
  /** A session of its own outlives spawner and host agent; anything else ends with them. */
  session: boolean;
  /** Descriptors from 0 on. Only stdout and stderr may be pipes. */
  stdio: readonly ChildStdio[];
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
}

/** The child may be running, if it is a session, or have ended: whoever needs to know has to look. */
export class SpawnerLost extends Error {
  override readonly name = 'SpawnerLost';
}

export class Spawner implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #children = new Map<number, { started: Deferred<StartedChild>; ended: Deferred<ChildEnd> }>();
  readonly #held = new Set<Promise<unknown>>();
  readonly #onLost: () => void;
  #nextId = 1;
  #lost: SpawnerLost | undefined;

  constructor(onLost: () => void) {
    this.#onLost = onLost;
    this.#process = spawn(process.execPath, [SCRIPT], {
      detached: true, // signals to our process group are for us
      env: {},
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#exited = once(this.#process, 'exit').catch(() => {});
    this.#process.on('message', (message) => this.#receive(Report.parse(message)));
    this.#process.on('error', (cause) => this.#lose(cause));
    // A child between fork and exec still holds the channel: once it has closed, whatever was started is to be seen under its own name.
    this.#process.on('disconnect', () => this.#lose());
    this.#process.unref();
    this.#process.channel?.unref();
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
    this.#process.channel?.ref();
    try {
      return await work;
    } finally {
      this.#held.delete(work);
      if (this.#held.size === 0) this.#process.channel?.unref();
    }
  }

  /** Lets what is held come to its end, then the spawner. Sessions run on. */
  async [Symbol.asyncDispose](): Promise<void> {
    while (this.#held.size > 0) await Promise.allSettled(this.#held);
    this.#lost ??= new SpawnerLost('the spawner was told to end');
    if (this.#process.connected) this.#process.disconnect();
    this.#process.ref();
    await this.#exited;
  }

  #send(message: object): void {
    this.#process.send(message, (error) => {
      if (error !== null) this.#lose(error);
    });
  }

  #receive(report: z.infer<typeof Report>): void {
    const { id } = report;
    const child = this.#children.get(id);
    if (child === undefined) return;
    if ('pid' in report) {
      const kill = () => {
        if (this.#children.has(id)) this.#send({ kill: id });
      };
      child.started.resolve({ pid: report.pid, ended: child.ended.promise, kill });
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
