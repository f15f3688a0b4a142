/**
 * HTTP/1.1 to one host agent: kept-alive connections, the host's bearer token, a deadline on every call. Errors come out as
 * AppErrors that name the host and never the token:
 * - the agent's own envelope as it is (400, 404, 409, 501, 502, 503 …), so that callers can act on the code;
 * - `unavailable` with isHostUnreachable when the agent cannot be reached, breaks the connection or does not answer in time;
 * - `internal` when it refuses our token or its answer is not what the protocol says.
 */

import http from 'node:http';
import https from 'node:https';
import { AppError, ErrorEnvelope } from '@fuse/contract';
import type { ZodType } from 'zod';

export interface HostAddress {
  id: string;
  url: string;
  token: string | null;
}

const TOKEN_REFUSED = 'host_token_refused';
export const isTokenRefused = (error: unknown): boolean =>
  error instanceof AppError && error.details?.reason === TOKEN_REFUSED;

const HOST_UNREACHABLE = 'host_unreachable';
/** Whether no answer came: what was asked may or may not have been done. Asking again is safe. */
export const isHostUnreachable = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'unavailable' && error.details?.reason === HOST_UNREACHABLE;

export interface HostCall {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  body?: unknown;
  /** Until the whole answer is here; for a stream, until its head is. */
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** The agent closed a kept-alive connection just as we used it: nothing was processed, every call may be repeated. */
const RACE_ERRORS = new Set(['ECONNRESET', 'EPIPE']);

export class HostTransport implements AsyncDisposable {
  readonly #host: HostAddress;
  readonly #base: URL;
  readonly #agent: http.Agent;

  constructor(host: HostAddress) {
    this.#host = host;
    this.#base = new URL(host.url);
    const options = { keepAlive: true, keepAliveMsecs: 10_000, maxFreeSockets: 32, timeout: 0 };
    this.#agent = this.#base.protocol === 'https:' ? new https.Agent(options) : new http.Agent(options);
  }

  async json<T extends ZodType>(call: HostCall, schema: T): Promise<ReturnType<T['parse']>> {
    const text = await this.#text(call);
    try {
      return schema.parse(JSON.parse(text)) as ReturnType<T['parse']>; // zod's own type of `parse`, which `T` hides
    } catch (error) {
      throw new AppError('internal', `host ${this.#host.id} gave an answer that the protocol does not know`, {
        cause: error,
      });
    }
  }

  async nothing(call: HostCall): Promise<void> {
    await this.#text(call);
  }

  #text(call: HostCall): Promise<string> {
    return withTimeout(call, async (signal) => {
      const response = await this.#send(call, signal);
      return this.#guard(call, signal, () => readBounded(response));
    });
  }

  /** The body, unread; destroy it to stop. */
  stream(call: HostCall): Promise<http.IncomingMessage> {
    return withTimeout(call, (signal) => this.#send(call, signal));
  }

  /** Resolves with a successful answer's head; `signal` also bounds reading its body. */
  async #send(call: HostCall, signal: AbortSignal): Promise<http.IncomingMessage> {
    const response = await this.#guard(call, signal, async () => {
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
    throw await this.#guard(call, signal, async () => this.#refusal(status, await readBounded(response)));
  }

  #start(call: HostCall, signal: AbortSignal) {
    const path = `${this.#base.pathname.replace(/\/$/, '')}${call.path}`;
    const body = call.body === undefined ? undefined : Buffer.from(JSON.stringify(call.body));
    const headers: http.OutgoingHttpHeaders = { accept: 'application/json' };
    if (this.#host.token !== null) headers.authorization = `Bearer ${this.#host.token}`;
    if (body !== undefined)
      Object.assign(headers, { 'content-type': 'application/json', 'content-length': body.length });
    const client = this.#base.protocol === 'https:' ? https : http;
    const url = new URL(this.#base);
    const request = client.request({
      protocol: url.protocol,
      hostname: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port,
      path,
      method: call.method,
      headers,
      agent: this.#agent,
      signal,
    });
    request.setNoDelay(true);
    const answer = new Promise<http.IncomingMessage>((resolve, reject) => {
      request.once('response', resolve);
      request.on('error', reject);
    });
    request.end(body);
    return { request, answer };
  }

  #refusal(status: number, text: string): AppError {
    if (status === 401 || status === 403)
      return new AppError('internal', `host ${this.#host.id} refuses the token it is registered with`, {
        details: { reason: TOKEN_REFUSED },
      });
    const parsed = ErrorEnvelope.safeParse(parseOrUndefined(text));
    if (parsed.success) {
      const { code, message, details, hint } = parsed.data.error;
      return new AppError(code, message, {
        status,
        ...(details === undefined ? {} : { details }),
        ...(hint === undefined ? {} : { hint }),
      });
    }
    return new AppError('internal', `host ${this.#host.id} answered ${status}`, { cause: text.slice(0, 500) });
  }

  /** Connection troubles become `unavailable`; the caller's own abort stays what it is. */
  async #guard<T>(call: HostCall, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (call.signal?.aborted) throw call.signal.reason;
      if (error instanceof AppError) throw error;
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

/** The deadline is for `work` alone; afterwards the signal still follows the caller's. */
async function withTimeout<T>(call: HostCall, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(new DOMException('deadline', 'TimeoutError')), call.timeoutMs);
  try {
    return await work(call.signal === undefined ? deadline.signal : AbortSignal.any([deadline.signal, call.signal]));
  } finally {
    clearTimeout(timer);
  }
}

async function readBounded(response: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) {
      response.destroy();
      throw new AppError('internal', `a host's answer is over ${MAX_ANSWER_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
