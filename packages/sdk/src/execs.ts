import {
  Exec,
  type ExecRequest,
  type ExecResult,
  type ExecStdin,
  ListExecs,
  ListProcesses,
  type SignalName,
} from '@fuse/contract';
import { environmentPath } from './environment-path.ts';
import { execPath, execResultOf, getExec, postStdin, waitForExec } from './exec-calls.ts';
import { type ExecLogItem, execLog, type LogOptions } from './exec-log.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Call, Transport } from './transport.ts';

export interface KillOptions extends CallOptions {
  /** To all that it started too. */
  tree?: boolean;
}

export interface WriteStdinOptions extends CallOptions {
  /** Of its stdin: what it has already is passed over. Absent: appended. */
  offset?: number;
  end?: boolean;
}

/** Commands of environments by their ids, which may be paused or gone. */
export class Execs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Started once this resolves, and on its own from then on. An id that is given makes it safe to call again. */
  start(environmentId: string, request: ExecRequest, { signal }: CallOptions = {}): Promise<Exec> {
    return this.#transport.json(Exec, {
      method: 'POST',
      path: `${environmentPath(environmentId)}/execs`,
      json: { ...request, id: request.id ?? crypto.randomUUID() },
      repeat: 'freely',
      signal,
    });
  }

  /** Newest first. */
  async list(environmentId: string, { tty, signal }: CallOptions & { tty?: boolean } = {}): Promise<Exec[]> {
    const { execs } = await this.#transport.json(ListExecs, {
      method: 'GET',
      path: `${environmentPath(environmentId)}/execs`,
      query: { tty: tty === true ? 'true' : undefined },
      repeat: 'freely',
      signal,
    });
    return execs;
  }

  get(environmentId: string, execId: string, options: CallOptions = {}): Promise<Exec> {
    return getExec(this.#transport, { environmentId, execId }, options);
  }

  /** Once it does not run any more; after `deadlineMs` as it is then, `running`. */
  wait(environmentId: string, execId: string, options: CallOptions & { deadlineMs?: number } = {}): Promise<Exec> {
    return waitForExec(this.#transport, { environmentId, execId }, options);
  }

  /** `conflict` while it runs. */
  result(
    environmentId: string,
    execId: string,
    options: CallOptions & { encoding?: 'utf8' | 'base64' } = {},
  ): Promise<ExecResult> {
    return execResultOf(this.#transport, { environmentId, execId }, options);
  }

  /** Lost connections are made again without gap or repeat; with `follow`, `FuseExecLostError` when its VM is lost. */
  log(environmentId: string, execId: string, options: LogOptions = {}): AsyncGenerator<ExecLogItem, void> {
    return execLog(this.#transport, { environmentId, execId }, options);
  }

  /** Resolves once the command has taken it. */
  writeStdin(
    environmentId: string,
    execId: string,
    bytes: Uint8Array,
    { offset, end = false, signal }: WriteStdinOptions = {},
  ): Promise<ExecStdin> {
    return postStdin(this.#transport, { environmentId, execId }, { bytes, offset, end }, signal);
  }

  /** To its process group, or its whole tree. */
  signal(
    environmentId: string,
    execId: string,
    name: SignalName = 'SIGTERM',
    { tree, signal }: KillOptions = {},
  ): Promise<void> {
    const path = `${execPath({ environmentId, execId })}/signal`;
    return this.#transport.none(signalCall(path, name, { tree, signal }));
  }

  /** The whole process tree; its record and log stay. */
  kill(environmentId: string, execId: string, options: CallOptions = {}): Promise<void> {
    const path = execPath({ environmentId, execId });
    return this.#transport.none({ method: 'DELETE', path, repeat: 'freely', ...options });
  }
}

/** What runs in a running environment, whoever started it. */
export class Processes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  list(environmentId: string, { signal }: CallOptions = {}): Promise<ListProcesses> {
    const path = `${environmentPath(environmentId)}/processes`;
    return this.#transport.json(ListProcesses, { method: 'GET', path, repeat: 'freely', signal });
  }

  signal(
    environmentId: string,
    pid: number,
    name: SignalName = 'SIGTERM',
    { tree, signal }: KillOptions = {},
  ): Promise<void> {
    const path = `${environmentPath(environmentId)}/processes/${pid}/signal`;
    return this.#transport.none(signalCall(path, name, { tree, signal }));
  }
}

export const signalCall = (
  path: string,
  name: SignalName,
  { tree, signal }: { tree: boolean | undefined; signal: AbortSignal | undefined },
): Call => ({
  method: 'POST',
  path,
  json: { signal: name, ...(tree === undefined ? {} : { tree }) },
  repeat: 'if-unsent',
  signal,
});
