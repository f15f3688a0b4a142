/**
 * HTTP/1.1 to one host agent: kept-alive connections, the host's bearer token, a deadline on every call. Errors come out as
 * AppErrors that name the host and never the token:
 * - the agent's own envelope as it is (400, 404, 409, 501, 502, 503 …), so that callers can act on the code;
 * - `unavailable` with isHostUnreachable when the agent cannot be reached, breaks the connection or does not answer in time;
 * - `internal` when it refuses our token or its answer is not what the protocol says;
 * - `invalid_argument` when a body that was to be sent failed before its end.
 */

import type http from 'node:http';
import { Readable } from 'node:stream';
import { AppError } from '@fuse/contract';
import type { ZodType } from 'zod';
import {
  type HostAddress,
  newAgent,
  openRequest,
  readBounded,
  refusal,
  SourceError,
  sendBody,
  TOKEN_REFUSED,
} from './host-request.ts';
import { type Upgraded, upgrade } from './host-upgrade.ts';

export type { HostAddress } from './host-request.ts';

export const isTokenRefused = (error: unknown): boolean =>
  error instanceof AppError && error.details?.reason === TOKEN_REFUSED;

const HOST_UNREACHABLE = 'host_unreachable';
/** Whether no answer came: what was asked may or may not have been done. Asking again is safe. */
export const isHostUnreachable = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'unavailable' && error.details?.reason === HOST_UNREACHABLE;

export interface HostCall {
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  /** A value, sent as JSON; or a Readable, whose bytes are sent as they come. It is read only as fast as the host takes it, and never destroyed. */
  body?: unknown;
  headers?: http.OutgoingHttpHeaders;
  /**
   * Until the whole answer is here; for a stream, until its head is. While a Readable body is being sent no time counts:
   * its source decides how long it may stand still.
   */
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

const KEPT_ALIVE = { keepAlive: true, keepAliveMsecs: 10_000, maxFreeSockets: 32, timeout: 0 };
/** The agent closed a kept-alive connection just as we used it: nothing was processed, every call may be repeated. */
const RACE_ERRORS = new Set(['ECONNRESET', 'EPIPE']);

export class HostTransport implements AsyncDisposable {
  readonly #host: HostAddress;
  readonly #agent: http.Agent;
  readonly #headers: http.OutgoingHttpHeaders;

  /** With `over`, its calls go over the connections of that one, with these headers. */
  constructor(host: HostAddress, over?: { transport: HostTransport; headers: http.OutgoingHttpHeaders }) {
    this.#host = host;
    this.#headers = over?.headers ?? {};
    this.#agent = over === undefined ? newAgent(host, KEPT_ALIVE) : over.transport.#agent;
  }

  async json<T extends ZodType>(call: HostCall, schema: T): Promise<ReturnType<T['parse']>> {
    return (await this.answer(call, schema)).body;
  }

  /** With its status, where that says something too. */
  async answer<T extends ZodType>(
    call: HostCall,
    schema: T,
  ): Promise<{ status: number; body: ReturnType<T['parse']> }> {
    const { status, text } = await this.#text(call);
    try {
      const body = schema.parse(JSON.parse(text)) as ReturnType<T['parse']>; // zod's own type of `parse`, which `T` hides
      return { status, body };
    } catch (error) {
      throw new AppError('internal', `host ${this.#host.id} gave an answer that the protocol does not know`, {
        cause: error,
      });
    }
  }

  async nothing(call: HostCall): Promise<void> {
    await this.#text(call);
  }

  #text(call: HostCall): Promise<{ status: number; text: string }> {
    return withTimeout(call, async (deadline) => {
      const response = await this.#send(call, deadline);
      const text = await this.#guard(call, deadline.signal, () => readBounded(response));
      return { status: response.statusCode ?? 0, text };
    });
  }

  /** The answer, its body unread; destroy it to stop. */
  stream(call: HostCall): Promise<http.IncomingMessage> {
    return withTimeout(call, (deadline) => this.#send(call, deadline));
  }

  /**
   * Switches to `protocol`: a socket of the caller's own from then on, half-close included, with what came behind the 101 in `head`.
   * The call's signal destroys it. An agent that does not switch says why, as everywhere.
   */
  upgrade(call: HostCall, protocol: string): Promise<Upgraded> {
    return withTimeout(call, ({ signal }) =>
      this.#guard(call, signal, () => upgrade(this.#host, { ...call, headers: call.headers ?? {}, signal }, protocol)),
    );
  }

  /** Resolves with a successful answer's head; the deadline's signal also bounds reading its body. */
  async #send(call: HostCall, deadline: Deadline): Promise<http.IncomingMessage> {
    const { signal } = deadline;
    const response = await this.#guard(call, signal, async () => {
      if (call.body instanceof Readable) return this.#sendStreamed(call, call.body, deadline);
      for (let attempt = 1; ; attempt += 1) {
        const { request, answer } = this.#start(call, signal);
        try {
          return await answer;
        } catch (error) {
          const raced = request.reusedSocket && RACE_ERRORS.has((error as NodeJS.ErrnoException).code ?? '');
          if (!raced || attempt > 3 || signal.aborted) throw error;
        }
      }
    });
    const status = response.statusCode ?? 0;
    if (status >= 200 && status < 300) return response;
    throw await this.#guard(call, signal, async () => {
      const error = refusal(this.#host, status, await readBounded(response));
      if (call.body instanceof Readable) response.destroy(); // the host would read the rest of it
      return error;
    });
  }

  #start(call: HostCall, signal: AbortSignal) {
    const body = call.body === undefined ? undefined : Buffer.from(JSON.stringify(call.body));
    const about = body === undefined ? {} : { 'content-type': 'application/json', 'content-length': body.length };
    const headers = { ...this.#headers, ...call.headers, ...about };
    const request = openRequest(this.#host, {
      method: call.method,
      path: call.path,
      headers,
      signal,
      agent: this.#agent,
    });
    const answer = answerOf(request);
    request.end(body);
    return { request, answer };
  }

  /** On a connection of its own: a body cannot be sent twice when a kept one turns out to be closed. */
  async #sendStreamed(call: HostCall, body: Readable, deadline: Deadline): Promise<http.IncomingMessage> {
    const { method, path } = call;
    const { signal } = deadline;
    // Kept alive in name: a host that refuses then closes nothing under what is still being sent.
    const headers = { 'content-type': 'application/octet-stream', connection: 'keep-alive', ...call.headers };
    const request = openRequest(this.#host, { method, path, headers, signal });
    request.once('socket', (socket) => {
      if (socket.connecting) socket.once('connect', () => deadline.pause());
      else deadline.pause();
    });
    request.once('finish', () => deadline.resume());
    const answer = answerOf(request);
    sendBody(body, request);
    return answer;
  }

  /** Connection troubles become `unavailable`; the caller's own abort stays what it is. */
  async #guard<T>(call: HostCall, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (call.signal?.aborted) throw call.signal.reason;
      if (error instanceof AppError) throw error;
      if (error instanceof SourceError)
        throw new AppError('invalid_argument', 'the upload ended before all of it was there', { cause: error });
      const late = signal.aborted;
      const what = late ? `did not answer within ${call.timeoutMs} ms` : 'cannot be reached';
      throw new AppError('unavailable', `host ${this.#host.id} ${what}`, {
        cause: error,
        retryAfterSeconds: 1,
        details: { reason: HOST_UNREACHABLE },
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#agent.destroy();
  }
}

function answerOf(request: http.ClientRequest): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once('response', resolve);
    request.on('error', reject);
  });
}

interface Deadline {
  signal: AbortSignal;
  pause(): void;
  resume(): void;
}

/** The deadline is for `work` alone; afterwards the signal still follows the caller's. */
async function withTimeout<T>(call: HostCall, work: (deadline: Deadline) => Promise<T>): Promise<T> {
  call.signal?.throwIfAborted();
  const late = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const pause = () => clearTimeout(timer);
  const resume = () => {
    timer = setTimeout(() => late.abort(new DOMException('deadline', 'TimeoutError')), call.timeoutMs);
  };
  resume();
  try {
    const signal = call.signal === undefined ? late.signal : AbortSignal.any([late.signal, call.signal]);
    return await work({ signal, pause, resume });
  } finally {
    clearTimeout(timer);
  }
}
