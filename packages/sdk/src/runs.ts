import { type CreateRun, isTerminalRunState, ListRuns, Run, type RunState } from '@fuse/contract';
import { ALL_PAGES_LIMIT, allPages } from './pages.ts';
import { resumedEvents } from './resumed-events.ts';
import { decodeRunEvent, type RunStreamEvent } from './run-events.ts';
import { type CallOptions, RunOutputs } from './run-outputs.ts';
import { type RunResult, runResult } from './run-result.ts';
import { sleep } from './sleep.ts';
import type { Call, Transport } from './transport.ts';

export interface CreateRunOptions extends CallOptions {
  /** Names this run: however often it is sent, the command runs once. Made up when absent. */
  idempotencyKey?: string;
}

export interface RunOptions extends CreateRunOptions {
  /** Called as soon as the run has an id, also when it is about to be cancelled because of an abort. */
  onCreated?: (run: Run) => void;
  /** Called in order, each awaited before the next event is read. */
  onEvent?: (event: RunStreamEvent) => void | Promise<void>;
  onStdout?: (bytes: Uint8Array) => void | Promise<void>;
  onStderr?: (bytes: Uint8Array) => void | Promise<void>;
}

export interface EventsOptions extends CallOptions {
  /** Go on after this event. */
  lastEventId?: string;
  /** How long to try to get further after a cut. Default 60 s. */
  patienceMs?: number;
}

export interface ListRunsOptions extends CallOptions {
  state?: RunState;
  image?: string;
  /** Only runs that carry all of these. */
  labels?: Record<string, string>;
  limit?: number;
  cursor?: string;
}

/** How long an aborted `run()` still waits for the server's answer to the create, so that it can cancel what was created. */
const ABORTED_CREATE_GRACE_MS = 5_000;
const CANCEL_TIMEOUT_MS = 15_000;
const FIRST_POLL_MS = 50;
const MAX_POLL_MS = 1_000;

export class Runs {
  readonly outputs: RunOutputs;
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
    this.outputs = new RunOutputs(transport);
  }

  /** Resolves when the run is admitted; with `wait: true` when it has ended. Sent again after a lost answer, it names the same run. */
  create(request: CreateRun, options: CreateRunOptions = {}): Promise<Run> {
    const { idempotencyKey = crypto.randomUUID(), signal } = options;
    return this.#transport.json(Run, {
      method: 'POST',
      path: '/v1/runs',
      json: request,
      headers: { 'Idempotency-Key': idempotencyKey },
      // "Now or never" is the caller's word for: do not ask again.
      repeat: request.queue_timeout_ms === 0 ? 'unless-refused' : 'freely',
      ...(request.wait === true ? { timeoutMs: null } : {}),
      signal,
    });
  }

  /**
   * Creates a run, follows it to its end and gives its result; the command runs at most once. Aborting cancels the run on the server, then
   * rejects with the signal's reason. `CutStreamError` (its `subjectId` is the run) when the server is gone for too long:
   * the run may still be going on, `events` and `wait` take it up again.
   */
  async run(request: CreateRun, options: RunOptions = {}): Promise<RunResult> {
    const { signal, onEvent, onStdout, onStderr } = options;
    const created = await this.#createOrCancel(request, options);
    try {
      for await (const event of this.events(created.id, signal === undefined ? {} : { signal })) {
        await onEvent?.(event);
        if (event.event === 'stdout') await onStdout?.(event.data);
        if (event.event === 'stderr') await onStderr?.(event.data);
      }
      return runResult(await this.get(created.id, signal === undefined ? {} : { signal }));
    } catch (error) {
      if (signal?.aborted) await this.#cancelQuietly(created.id);
      throw error;
    }
  }

  get(id: string, options: CallOptions = {}): Promise<Run> {
    return this.#transport.json(Run, { method: 'GET', path: runPath(id), repeat: 'freely', ...options });
  }

  list(options: Omit<ListRunsOptions, 'limit' | 'cursor'> = {}): Promise<Run[]> {
    return allPages(async (cursor) => {
      const page = await this.listPage({
        ...options,
        limit: ALL_PAGES_LIMIT,
        ...(cursor === undefined ? {} : { cursor }),
      });
      return { items: page.runs, nextCursor: page.nextCursor };
    });
  }

  async listPage(options: ListRunsOptions = {}): Promise<{ runs: Run[]; nextCursor: string | undefined }> {
    const { signal, labels = {}, ...filter } = options;
    const query = { ...filter, label: Object.entries(labels).map(([key, value]) => `${key}=${value}`) };
    const page = await this.#transport.json(ListRuns, {
      method: 'GET',
      path: '/v1/runs',
      query,
      repeat: 'freely',
      signal,
    });
    return { runs: page.runs, nextCursor: page.next_cursor };
  }

  /** The run that comes back may still be on its way to `cancelled`; `conflict` when it has ended otherwise. */
  cancel(id: string, options: CallOptions = {}): Promise<Run> {
    return this.#transport.json(Run, {
      method: 'POST',
      path: runPath(id),
      query: { action: 'cancel' },
      repeat: 'freely',
      ...options,
    });
  }

  /**
   * Everything that happened and happens, to the terminal state. Lost connections are made again by itself without gap or repeat;
   * CutStreamError when nothing comes of that for a minute.
   */
  events(id: string, options: EventsOptions = {}): AsyncGenerator<RunStreamEvent, void> {
    return resumedEvents(
      {
        id,
        connect: (lastEventId, signal) =>
          this.#transport.open(eventsCall(`${runPath(id)}/events`, lastEventId, signal)),
        decode: decodeRunEvent,
        isLast: (event) => event.event === 'state' && isTerminalRunState(event.state),
      },
      { ...options, random: this.#transport.config.random },
    );
  }

  /** The result once the run has ended, however long that takes. */
  async wait(id: string, options: CallOptions = {}): Promise<RunResult> {
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(MAX_POLL_MS, pollMs * 1.5)) {
      const run = await this.get(id, options);
      if (isTerminalRunState(run.state)) return runResult(run);
      await sleep(pollMs, options.signal);
    }
  }

  /** An abort while the create is under way must not leave a run behind whose id nobody knows. */
  async #createOrCancel(request: CreateRun, options: RunOptions): Promise<Run> {
    const { signal } = options;
    signal?.throwIfAborted();
    const giveUp = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const onAbort = () => {
      timer = setTimeout(() => giveUp.abort(signal?.reason), ABORTED_CREATE_GRACE_MS);
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      const created = await this.create({ ...request, wait: false }, { ...options, signal: giveUp.signal });
      options.onCreated?.(created);
      if (!signal?.aborted) return created;
      await this.#cancelQuietly(created.id);
    } catch (error) {
      if (!signal?.aborted) throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    }
    throw signal?.reason;
  }

  /** The caller hears of the abort, not of this: a run that could not be told ends by its own time limit. */
  async #cancelQuietly(id: string): Promise<void> {
    await this.cancel(id, { signal: AbortSignal.timeout(CANCEL_TIMEOUT_MS) }).catch(() => {});
  }
}

const runPath = (id: string): string => `/v1/runs/${encodeURIComponent(id)}`;

export function eventsCall(path: string, lastEventId: string | undefined, signal: AbortSignal): Call {
  return {
    method: 'GET',
    path,
    headers: { Accept: 'text/event-stream', ...(lastEventId === undefined ? {} : { 'Last-Event-ID': lastEventId }) },
    // The stream itself decides when to come back.
    repeat: 'never',
    timeoutMs: null,
    signal,
  };
}
