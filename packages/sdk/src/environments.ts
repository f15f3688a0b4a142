import {
  type ComputerAction,
  ComputerResult,
  ComputerStatus,
  type CreateEnvironment,
  Environment,
  EnvironmentEvent,
  EnvironmentNetwork,
  type EnvironmentState,
  type ExecRequest,
  type ExecResult,
  environmentTransitions,
  type ForkEnvironment,
  Forks,
  type Health,
  PlacementReport,
  STARTUP_DEFAULT_TIMEOUT_SECONDS,
  type Ticket,
  type TicketRequest,
  type UpdateEnvironment,
} from '@fuse/contract';
import { z } from 'zod';
import { type ComputerToolResult, toolResult } from './computer.ts';
import { openDisplay } from './display-stream.ts';
import { environmentPath } from './environment-path.ts';
import { FuseError } from './errors.ts';
import { Execs, Processes } from './execs.ts';
import { type KeyedOptions, onceUnder } from './once.ts';
import { createTicket } from './open-socket.ts';
import { ALL_PAGES_LIMIT, allPages, listOf, nextCursor } from './pages.ts';
import { type ConnectPortOptions, connectPort, type PortConnection } from './port-connection.ts';
import { RemoteFiles } from './remote-files.ts';
import {
  type ReattachOptions,
  type RemoteProcess,
  reattachProcess,
  type SpawnCallOptions,
  type SpawnOptions,
  spawnProcess,
} from './remote-process.ts';
import { type Identified, resumedEvents } from './resumed-events.ts';
import { runExec } from './run-exec.ts';
import type { CallOptions } from './run-outputs.ts';
import { type EventsOptions, eventsCall } from './runs.ts';
import { type AttachOptions, Terminal } from './terminal.ts';
import type { Call, Transport } from './transport.ts';
import type { ByteConnection } from './web-sockets.ts';

export interface ListEnvironmentsOptions extends CallOptions {
  taskId?: string;
  state?: EnvironmentState;
  hostId?: string;
  /** Only those that carry all of these. */
  labels?: Record<string, string>;
  /** With the master token: of every tenant, each with its `tenant_id`. */
  allTenants?: boolean;
  limit?: number;
  cursor?: string;
}

const EnvironmentsPage = z.object({ environments: listOf(Environment), next_cursor: nextCursor });

export interface Tickets {
  create(request: TicketRequest, options?: CallOptions): Promise<Ticket>;
}

export type HealthState = Health['state'];

export const isTerminalState = (state: EnvironmentState): boolean => environmentTransitions[state].length === 0;

/** On top of a startup's own time: the start before it, the way there and back. */
const STARTUP_GRACE_MS = 60_000;

/** How long the answer to a create may take because of its script. */
function startupMs({ startup_script, startup_script_timeout_seconds, wait }: CreateEnvironment): number {
  if (!startup_script || wait === false) return 0;
  return (startup_script_timeout_seconds || STARTUP_DEFAULT_TIMEOUT_SECONDS) * 1_000 + STARTUP_GRACE_MS;
}

export class Environments {
  readonly execs: Execs;
  readonly processes: Processes;
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
    this.execs = new Execs(transport);
    this.processes = new Processes(transport);
  }

  /**
   * Resolves with the environment running or, with `wait: false`, as `provisioning`: `events` tell the rest. Without an idempotency key it is never sent twice (after a lost answer look it up by its
   * task id), and aborting it gives the start up; with one it goes on.
   */
  create(request: CreateEnvironment, options: KeyedOptions = {}): Promise<Environment> {
    const { timeoutMs } = this.#transport.config;
    return this.#transport.json(Environment, {
      method: 'POST',
      path: '/v1/environments',
      json: request,
      ...(timeoutMs === undefined ? {} : { timeoutMs: Math.max(timeoutMs, startupMs(request)) }),
      ...onceUnder(options),
    });
  }

  get(id: string, options: CallOptions = {}): Promise<Environment> {
    return this.#transport.json(Environment, {
      method: 'GET',
      path: environmentPath(id),
      repeat: 'freely',
      ...options,
    });
  }

  list(options: Omit<ListEnvironmentsOptions, 'limit' | 'cursor'> = {}): Promise<Environment[]> {
    return allPages(async (cursor) => {
      const page = await this.listPage({
        ...options,
        limit: ALL_PAGES_LIMIT,
        ...(cursor === undefined ? {} : { cursor }),
      });
      return { items: page.environments, nextCursor: page.nextCursor };
    });
  }

  async listPage(
    options: ListEnvironmentsOptions = {},
  ): Promise<{ environments: Environment[]; nextCursor: string | undefined }> {
    const { taskId, state, hostId, labels = {}, allTenants, limit, cursor, signal } = options;
    const label = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    const page = await this.#transport.json(EnvironmentsPage, {
      method: 'GET',
      path: '/v1/environments',
      query: {
        task_id: taskId,
        state,
        host_id: hostId,
        label,
        all_tenants: allTenants === true ? 'true' : undefined,
        limit,
        cursor,
      },
      repeat: 'freely',
      signal,
    });
    return { environments: page.environments, nextCursor: page.next_cursor };
  }

  /**
   * Runs one command to its end, however long its `timeout_ms` lets it. A non-zero exit and a timeout are results. After a lost connection it is asked
   * for by its id, and never run twice; aborting kills it.
   */
  exec(id: string, request: ExecRequest, options: CallOptions = {}): Promise<ExecResult> {
    return runExec(this.#transport, id, request, options);
  }

  /** Resolves once the command is started. */
  spawn(id: string, command: SpawnOptions, options: SpawnCallOptions = {}): Promise<RemoteProcess> {
    return spawnProcess(this.#transport, id, command, options);
  }

  /** Takes up an exec by its id, from the beginning of its log or from `offset` or `tail`. */
  process(id: string, execId: string, options: ReattachOptions = {}): Promise<RemoteProcess> {
    return reattachProcess(this.#transport, { environmentId: id, execId }, options);
  }

  files(id: string): RemoteFiles {
    return new RemoteFiles(this.#transport, id);
  }

  /** A terminal session: begun, or joined by its id. */
  attach(id: string, options: AttachOptions = {}): Promise<Terminal> {
    return Terminal.attach(this.#transport, id, options);
  }

  /** A TCP connection to a server on the guest's loopback. */
  connectPort(id: string, port: number, options: ConnectPortOptions = {}): Promise<PortConnection> {
    return connectPort(this.#transport, id, port, options);
  }

  /** Each lets one WebSocket be opened without a token: for browsers. */
  tickets(id: string): Tickets {
    return { create: (request, options) => createTicket(this.#transport, id, request, options) };
  }

  /** Its lifetime, what it does when idle, its labels, what it may reach (enforced when it resolves); what is absent stays. A lifetime that is over is not renewed (`conflict`). */
  update(id: string, request: UpdateEnvironment, options: CallOptions = {}): Promise<Environment> {
    return this.#transport.json(Environment, {
      method: 'PATCH',
      path: environmentPath(id),
      json: request,
      repeat: 'freely',
      ...options,
    });
  }

  /**
   * Nothing new begins in it, and what runs is asked to end. It stays until it is destroyed or its lifetime ends. Resolves when nothing runs any more, at most
   * half a minute later. Undefined from servers that answer 204.
   */
  drain(id: string, options: CallOptions = {}): Promise<Environment> {
    const call: Call = { ...actionCall(id, 'drain'), repeat: 'if-unsent', ...options };
    return this.#transport.json(maybeEnvironment, call) as Promise<Environment>; // ours always says what it is
  }

  /** Gives it another credential; the old one is refused at once, and what was connected with it is cut. */
  rotateToken(id: string, options: CallOptions = {}): Promise<void> {
    return this.#transport.none({ ...actionCall(id, 'rotate-token'), ...options });
  }

  /** Why it is where it is, or waits. */
  placement(id: string, options: CallOptions = {}): Promise<PlacementReport> {
    const path = `${environmentPath(id)}/placement`;
    return this.#transport.json(PlacementReport, { method: 'GET', path, repeat: 'freely', ...options });
  }

  /** What it may reach, and what became of its connections; of one that is gone the sums. `update` with `network` changes it. */
  network(id: string, options: CallOptions = {}): Promise<EnvironmentNetwork> {
    const path = `${environmentPath(id)}/network`;
    return this.#transport.json(EnvironmentNetwork, { method: 'GET', path, repeat: 'freely', ...options });
  }

  /** One action on its display: a click, keys, a screenshot. It is never sent twice. */
  computer(id: string, action: ComputerAction, options: CallOptions = {}): Promise<ComputerResult> {
    const path = `${environmentPath(id)}/computer`;
    return this.#transport.json(ComputerResult, {
      method: 'POST',
      path,
      json: action,
      repeat: 'if-unsent',
      ...options,
    });
  }

  /** Whether it has a display, and its size. */
  computerDisplay(id: string, options: CallOptions = {}): Promise<ComputerStatus> {
    const path = `${environmentPath(id)}/computer`;
    return this.#transport.json(ComputerStatus, { method: 'GET', path, repeat: 'freely', ...options });
  }

  /**
   * Its display, as raw RFB (VNC) both ways; on Node, with `webSockets: nodeWebSockets()`. Rejects with FuseApiError `unavailable` when the display is not up.
   * Aborting ends the stream too.
   */
  computerStream(id: string, options: CallOptions = {}): Promise<ByteConnection> {
    return openDisplay(this.#transport, id, options);
  }

  /** An action, and what came of it as a model's tool takes it. What a model can do something about (400, 409, 503) is a result, all else rejects. */
  computerToolResult(id: string, action: ComputerAction, options: CallOptions = {}): Promise<ComputerToolResult> {
    return toolResult(this.computer(id, action, options));
  }

  destroy(id: string, options: CallOptions = {}): Promise<void> {
    return this.#transport.none({ method: 'DELETE', path: environmentPath(id), repeat: 'freely', ...options });
  }

  /**
   * A new environment that goes on from where this one is: memory, processes, disk. This one goes on too. Without an idempotency key it is
   * never sent twice (after a lost answer look for environments whose `seed_snapshot_id` is a snapshot of this one), and aborting it gives
   * the fork up; with one it goes on.
   */
  fork(id: string, request: Omit<ForkEnvironment, 'count'> = {}, options: KeyedOptions = {}): Promise<Environment> {
    return this.#transport.json(maybeEnvironment, forkCall(id, request, options)) as Promise<Environment>; // as `drain`
  }

  /** So many forks of one snapshot: all of them, or an error and none. */
  forkMany(id: string, request: ForkEnvironment & { count: number }, options: KeyedOptions = {}): Promise<Forks> {
    return this.#transport.json(Forks, forkCall(id, request, options));
  }

  /** Resolves when it is paused: it holds no memory and no CPU, and keeps its id, processes and files. */
  pause(id: string, options: CallOptions = {}): Promise<Environment> {
    return this.#transport.json(Environment, { ...actionCall(id, 'pause'), ...options });
  }

  /** Resolves when it runs again where it was paused. Called by many at once it is resumed once, and all of them succeed. */
  resume(id: string, options: CallOptions = {}): Promise<Environment> {
    return this.#transport.json(Environment, { ...actionCall(id, 'resume'), ...options });
  }

  /**
   * Its changes of state and of health (`event`), to `destroyed` or `failed`. An environment that does not exist rejects the promise; connections lost
   * later are made again by itself. `restored_from` with `running`: it was restored in place, and all that was connected to it is cut.
   */
  async events(id: string, options: EventsOptions = {}): Promise<AsyncIterable<EnvironmentEvent>> {
    const events = resumedEvents<EnvironmentEvent>(
      {
        id,
        connect: (lastEventId, signal) =>
          this.#transport.open(eventsCall(`${environmentPath(id)}/events`, lastEventId, signal)),
        decode: decodeEnvironmentEvent,
        isLast: (event) => isTerminalState(event.state),
      },
      { ...options, random: this.#transport.config.random },
    );
    const first = await events.next();
    return startingWith(first, events);
  }
}

const maybeEnvironment = Environment.optional();

const actionCall = (id: string, action: string): Call => ({
  method: 'POST',
  path: environmentPath(id),
  query: { action },
  repeat: 'freely',
});

const forkCall = (id: string, request: ForkEnvironment, options: KeyedOptions): Call => ({
  ...actionCall(id, 'fork'),
  json: request,
  ...onceUnder(options),
});

function decodeEnvironmentEvent(data: string): EnvironmentEvent {
  try {
    return EnvironmentEvent.parse(JSON.parse(data));
  } catch (cause) {
    throw new FuseError('decode event: not an event of an environment', { cause });
  }
}

async function* startingWith(
  first: IteratorResult<Identified<EnvironmentEvent>, void>,
  rest: AsyncGenerator<Identified<EnvironmentEvent>, void>,
): AsyncGenerator<EnvironmentEvent, void> {
  try {
    if (first.done) return;
    yield first.value;
    yield* rest;
  } finally {
    await rest.return();
  }
}
