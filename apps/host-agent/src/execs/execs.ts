/** The execs of one VM, running and ended, by id. */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, MAX_FRAME_PAYLOAD_BYTES } from '@fuse/contract';
import type { StartExec } from '@fuse/host-protocol';
import { withDeadline } from '@fuse/runtime';
import { Detached, Exec, type ExecHost } from './exec.ts';
import { type ExecRecord, loadExecRecord, newExecRecord, toGuestSpec } from './exec-record.ts';
import { findParts, headPath, type LogView } from './log-parts.ts';

/** Below the time that the orchestrator waits for an answer. */
const START_DEADLINE_MS = 25_000;

export interface ExecsOptions {
  /** `vms/<id>/execs` */
  directory: string;
  /** Given to every exec, below its own. Never logged. */
  vmEnv: Record<string, string>;
  host: ExecHost;
  /** Told apart in the guest from execs that came with its snapshot. */
  scope: () => string | undefined;
  /** Called with the number of those that run, each time that it changes. */
  onRunning: (count: number) => void;
}

export class Execs {
  readonly #options: ExecsOptions;
  readonly #execs = new Map<string, Exec>();
  #running = 0;
  #standsStill = false;

  constructor(options: ExecsOptions) {
    this.#options = options;
  }

  get(id: string): Exec {
    const exec = this.#execs.get(id);
    if (exec === undefined) throw new AppError('not_found', `there is no exec "${id}"`);
    return exec;
  }

  /**
   * Starts it unless it exists already, and resolves once the guest runs it. When that cannot be known in time the answer is
   * `deadline_exceeded`: the start goes on, and asking again with the same id never starts it twice.
   */
  async start(id: string, request: StartExec): Promise<{ exec: Exec; created: boolean }> {
    const existing = this.#execs.get(id);
    const exec = existing ?? this.#create(id, request);
    await withDeadline(START_DEADLINE_MS, 'the start of the command', () => exec.started).catch((error: unknown) => {
      if (error instanceof AppError) throw error;
      throw new AppError('deadline_exceeded', 'the guest has not confirmed the start of the command', {
        cause: error,
        hint: 'ask again with the same id: it never starts twice',
      });
    });
    return { exec, created: existing === undefined };
  }

  /** Takes up those that an earlier host agent left in the directory. */
  async load(): Promise<void> {
    const { directory, host } = this.#options;
    const ids = await readdir(directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    for (const id of ids) {
      try {
        const record = await loadExecRecord(join(directory, id));
        if (record === undefined) await rm(join(directory, id), { recursive: true, force: true });
        else this.#add(id, await this.#loaded(id, record));
      } catch (error) {
        host.log.error({ err: error, exec_id: id }, 'exec record unreadable');
      }
    }
  }

  /** The VM stands still, from before `load` perhaps: nobody's time passes. */
  standStill(): void {
    this.#standsStill = true;
    for (const exec of this.#execs.values()) exec.standStill();
  }

  goOn(stoodStillMs: number): void {
    this.#standsStill = false;
    for (const exec of this.#execs.values()) exec.goOn(stoodStillMs);
  }

  /** In the order of their start. */
  list(): Exec[] {
    return [...this.#execs.values()].sort((a, b) => a.createdAtMs - b.createdAtMs);
  }

  /** What is known of them and their output survives the machine's end. */
  async flush(): Promise<void> {
    for (const exec of this.#execs.values()) await exec.flush();
  }

  /** Whoever is connected to one has to come again. */
  disconnect(reason: AppError): void {
    for (const exec of this.#execs.values()) exec.disconnect(reason);
  }

  /** Every running exec becomes `lost`. */
  async lose(reason: AppError): Promise<void> {
    await Promise.all([...this.#execs.values()].map((exec) => exec.stop(reason)));
  }

  /** Lets go of the running ones, which run on in the VM. */
  async detach(): Promise<void> {
    await Promise.all([...this.#execs.values()].map((exec) => exec.stop(new Detached())));
  }

  #create(id: string, asked: StartExec): Exec {
    const { directory, host, vmEnv } = this.#options;
    const request = { ...asked, env: { ...vmEnv, ...asked.env } };
    const record = newExecRecord(id, request, Date.now(), this.#options.scope());
    const specBytes = Buffer.byteLength(JSON.stringify(toGuestSpec(request, record.stdin_file)));
    if (specBytes > MAX_FRAME_PAYLOAD_BYTES)
      throw new AppError('invalid_argument', `argv and env take ${specBytes} bytes, over ${MAX_FRAME_PAYLOAD_BYTES}`, {
        details: { field: 'argv' },
        hint: 'put large values in a file or on stdin',
      });
    host.guest(); // a dead VM refuses before anything is written
    const exec = new Exec(host, join(directory, id), record, {
      origin: 'new',
      standsStill: false,
      firstStdinBase64: request.stdin_base64,
    });
    this.#add(id, exec);
    exec.started.catch(() => {
      if (!exec.kept) this.#execs.delete(id);
    });
    return exec;
  }

  async #loaded(id: string, record: ExecRecord): Promise<Exec> {
    const { directory, host } = this.#options;
    const log = record.state === 'running' ? undefined : await keptLog(join(directory, id), record);
    return new Exec(host, join(directory, id), record, { origin: 'loaded', standsStill: this.#standsStill, log });
  }

  #add(id: string, exec: Exec): void {
    this.#execs.set(id, exec);
    if (!exec.running) return;
    this.#options.onRunning(++this.#running);
    void exec.settled.then(() => this.#options.onRunning(--this.#running));
  }
}

async function keptLog(directory: string, { keep, log_bytes = 0 }: ExecRecord): Promise<LogView> {
  if (keep === 'head') return { parts: [{ offset: 0, path: headPath(directory), bytes: log_bytes }], end: log_bytes };
  const { head, segments } = await findParts(directory);
  const parts = [head, ...segments].map((part) => ({ ...part, bytes: Math.min(part.bytes, log_bytes - part.offset) }));
  return { parts: parts.filter((part) => part.bytes > 0), end: log_bytes };
}
