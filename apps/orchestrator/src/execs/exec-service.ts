/** Commands and processes in environments, as the routes ask for them. Each command has an id and is started once by it. */

import type { Readable } from 'node:stream';
import {
  AppError,
  type Encoding,
  type Exec,
  type ExecRequest,
  type ExecResult,
  type ExecStdin,
  type ListProcesses,
  type SignalRequest,
} from '@fuse/contract';
import type { GuestSignal } from '@fuse/host-protocol';
import { newId } from '@fuse/runtime';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import { noteLoss } from '../environments/note-loss.ts';
import { type HostClient, MAX_WAIT_MS } from '../hosts/host-client.ts';
import { persistently } from '../hosts/host-retries.ts';
import { asExecError, EXEC_RESULT_LIMIT_BYTES, execInEnvironment } from './exec-in-environment.ts';
import { ExecReads, type FoundExec } from './exec-reads.ts';
import { HostSource, isNotFound } from './exec-source.ts';
import { type ExecForm, toStartExec } from './exec-spec.ts';
import { lost, toExec, toExecResult } from './exec-view.ts';
import { type FollowedLog, type FollowOptions, followLog } from './follow-log.ts';
import { inUse } from './in-use.ts';

const MAX_TRIES = 3;

export interface EnvironmentRef {
  tenantId: string;
  id: string;
}

export interface StdinOrder {
  body: Readable;
  offset: number | undefined;
  end: boolean;
  signal: AbortSignal;
}

export class ExecService {
  readonly #context: EnvironmentContext;
  readonly #environments: EnvironmentService;
  readonly #reads: ExecReads;

  constructor(context: EnvironmentContext, environments: EnvironmentService) {
    this.#context = context;
    this.#environments = environments;
    this.#reads = new ExecReads(context);
  }

  /** `?action=exec`: to its end. Aborting `signal` kills it, unless it asked for `keep_running`. `onStarted`: it runs, and did not end at once. */
  call(ref: EnvironmentRef, request: ExecRequest, onStarted: () => void, signal: AbortSignal): Promise<ExecResult> {
    const command = toStartExec(request, 'call'); // what is wrong with it is said first
    const order = {
      execId: request.id ?? newId('exec'),
      command,
      encoding: request.encoding ?? 'utf8',
      keepRunning: request.keep_running ?? false,
      onStarted,
    } as const;
    return this.#whileRunning(ref, signal, (row) => execInEnvironment(this.#context, row, order, signal));
  }

  /** Once it is started. `isNew`: none of that id was there. */
  start(
    ref: EnvironmentRef,
    request: ExecRequest,
    form: Exclude<ExecForm, 'call'>,
    signal: AbortSignal,
  ): Promise<FoundExec & { isNew: boolean }> {
    const command = toStartExec(request, form);
    const execId = request.id ?? newId('exec');
    return this.#whileRunning(ref, signal, async (row, client) => {
      try {
        const start = () => client.execs.start(row.vm_id, execId, command, signal);
        const { exec, isNew } = await persistently(this.#context.hostRetryMs, start, signal);
        return { row, source: new HostSource(client, row.vm_id, this.#context.hostRetryMs), exec, isNew };
      } catch (error) {
        await noteLoss(this.#context, row, error);
        throw asExecError(row, error);
      }
    });
  }

  /** Newest first. Of an environment that is gone too. */
  async list({ tenantId, id }: EnvironmentRef, isTty: boolean, signal: AbortSignal): Promise<Exec[]> {
    const execs = await this.#reads.list(tenantId, id, signal);
    return execs
      .reverse()
      .map(toExec)
      .filter((exec) => !isTty || exec.tty !== undefined);
  }

  find({ tenantId, id }: EnvironmentRef, execId: string, signal: AbortSignal): Promise<FoundExec> {
    return this.#reads.find(tenantId, id, execId, signal);
  }

  /** At its end, or after `waitMs`. */
  async wait(found: FoundExec, waitMs: number, signal: AbortSignal): Promise<Exec> {
    const until = performance.now() + waitMs;
    let place = found;
    while (place.exec.state === 'running') {
      const leftMs = until - performance.now();
      if (leftMs <= 0) break;
      const { source, exec } = place;
      try {
        place = { ...place, exec: await source.get(exec.id, Math.min(leftMs, MAX_WAIT_MS), signal) };
      } catch (error) {
        if (!isNotFound(error)) throw error;
        place = await this.#reads.findAgain(place, signal);
      }
    }
    return toExec(place.exec);
  }

  /** 409 while it runs; `vm_lost` when its end is not known. */
  async result({ source, exec }: FoundExec, encoding: Encoding, signal: AbortSignal): Promise<ExecResult> {
    if (exec.state === 'running')
      throw new AppError('conflict', `exec ${exec.id} is still running`, { details: { state: 'running' } });
    if (exec.state === 'lost') throw lost(exec.id, exec.error);
    return toExecResult(exec.id, await source.result(exec.id, EXEC_RESULT_LIMIT_BYTES, signal), encoding);
  }

  /** Its environment is in use for as long as it is followed. */
  async log(found: FoundExec, options: FollowOptions): Promise<FollowedLog> {
    const log = await followLog(this.#reads, found, options);
    return options.follow ? { ...log, events: this.#used(found.row, log.events) } : log;
  }

  async *#used<T>(row: EnvironmentRow, events: AsyncGenerator<T>): AsyncGenerator<T> {
    using _ = inUse(this.#context.db.query, row);
    yield* events;
  }

  /** Resolves once the command has taken all of it. */
  writeStdin(ref: EnvironmentRef, execId: string, order: StdinOrder): Promise<ExecStdin> {
    return this.#once(ref, execId, order.signal, async (row, client) => {
      using _ = inUse(this.#context.db.query, row);
      return client.execs.writeStdin(row.vm_id, execId, order);
    });
  }

  signal(ref: EnvironmentRef, execId: string, request: SignalRequest, signal: AbortSignal): Promise<void> {
    return this.#once(ref, execId, signal, (row, client) =>
      client.execs.signal(row.vm_id, execId, toSignal(request), signal),
    );
  }

  kill(ref: EnvironmentRef, execId: string, signal: AbortSignal): Promise<void> {
    return this.#once(ref, execId, signal, (row, client) => client.killExec(row.vm_id, execId, signal));
  }

  processes(ref: EnvironmentRef, signal: AbortSignal): Promise<ListProcesses> {
    return this.#once(ref, undefined, signal, (row, client) => client.execs.processes(row.vm_id, signal));
  }

  signalProcess(ref: EnvironmentRef, pid: number, request: SignalRequest, signal: AbortSignal): Promise<void> {
    return this.#once(ref, undefined, signal, (row, client) =>
      client.execs.signalProcess(row.vm_id, pid, toSignal(request), signal),
    );
  }

  async #once<T>(
    { tenantId, id }: EnvironmentRef,
    execId: string | undefined,
    signal: AbortSignal,
    work: (row: EnvironmentRow, client: HostClient) => Promise<T>,
  ): Promise<T> {
    const row = await this.#environments.ready(await this.#environments.find(tenantId, id), signal);
    const client = await this.#context.hosts.client(row.host_id);
    try {
      return await work(row, client);
    } catch (error) {
      await noteLoss(this.#context, row, error);
      if (!isNotFound(error) || execId === undefined) throw error;
      throw new AppError('not_found', `exec ${execId} of vm ${id} not found`, { cause: error });
    }
  }

  /** Paused between the look and the start, it is tried again: asked for under the same id, a command is still started once. */
  async #whileRunning<T>(
    { tenantId, id }: EnvironmentRef,
    signal: AbortSignal,
    work: (row: EnvironmentRow, client: HostClient) => Promise<T>,
  ): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      const found = await (tries === 1
        ? this.#environments.findRecent(tenantId, id)
        : this.#environments.find(tenantId, id));
      const row = await this.#environments.ready(found, signal);
      try {
        return await work(row, await this.#context.hosts.client(row.host_id));
      } catch (error) {
        const isRefused = error instanceof AppError && error.code === 'conflict';
        if (!isRefused || tries >= MAX_TRIES || (await this.#isAsItWas(row))) throw error;
      }
    }
  }

  async #isAsItWas(row: EnvironmentRow): Promise<boolean> {
    return (await environmentByUid(this.#context.db.query, row.uid))?.version === row.version;
  }
}

const toSignal = ({ signal = 'SIGTERM', tree }: SignalRequest): GuestSignal => ({
  signal,
  ...(tree === undefined ? {} : { tree }),
});
