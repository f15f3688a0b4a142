/** One call over fetch: URL, headers, deadline, retries, errors. Knows no noun of the API. */
import { ErrorEnvelope, errorStatus, TENANT_HEADER } from '@fuse/contract';
import { z } from 'zod';
import { apiErrorFrom, FuseApiError, FuseConnectionError, FuseError, FuseTimeoutError, isNotFound } from './errors.ts';
import { type Random, type Repeat, withRetries } from './retry.ts';
import { within } from './sleep.ts';
import type { WebSockets } from './web-sockets.ts';

export type Fetch = (url: URL, init: RequestInit & { duplex?: 'half' }) => Promise<Response>;
export type Query = Record<string, string | number | readonly string[] | undefined>;
export type Body = string | Uint8Array | Blob | ReadableStream<Uint8Array>;

export interface TransportConfig {
  baseUrl: URL;
  token: string | undefined;
  tenant: string | undefined;
  fetch: Fetch;
  userAgent: string;
  requestId: (() => string) | undefined;
  headers: Record<string, string>;
  timeoutMs: number | undefined;
  retries: number;
  random: Random;
  webSockets: WebSockets;
}

export interface Call {
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** From the root, its parts already encoded; or a whole URL. */
  path: string;
  /** Send neither our token nor our headers. */
  anonymous?: boolean;
  /** Empty and 0 are left out, as nothing said; where they say something, give '0'. */
  query?: Query;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. A function is asked for a fresh body at each attempt. */
  body?: () => Body;
  headers?: Record<string, string>;
  /** `freely` only where doing it twice is the same as doing it once. */
  repeat: Repeat;
  /** Of all attempts together; `null`: none, absent: the client's. */
  timeoutMs?: number | null;
  /** Without a byte of the answer for so long the connection counts as lost. Only for answers that heartbeats keep alive. */
  stallMs?: number;
  signal?: AbortSignal | undefined;
}

export function queried(url: URL, query: Query): URL {
  for (const [name, value] of Object.entries(query))
    for (const each of [value].flat())
      if (each !== undefined && each !== '' && each !== 0) url.searchParams.append(name, String(each));
  return url;
}

/** Errors that are raised before any byte of the request is written. */
const neverSentCodes = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

export class Transport {
  readonly config: TransportConfig;

  constructor(config: TransportConfig) {
    this.config = config;
  }

  /**
   * The answer's JSON, checked; an empty one is `undefined`, where the schema takes that. Reading it is part of the attempt: an answer that breaks off is a lost
   * connection.
   */
  async json<T extends z.ZodType>(schema: T, call: Call): Promise<z.infer<T>> {
    const text = await this.#attempts(call, (response) => textOf(response, call.stallMs));
    let value: unknown;
    try {
      value = text === '' && schema.safeParse(undefined).success ? undefined : JSON.parse(text);
    } catch (cause) {
      throw new FuseError(`${call.method} ${call.path}: the answer is not JSON`, { cause });
    }
    const parsed = schema.safeParse(value);
    if (parsed.success) return parsed.data;
    // What fails after heartbeats have begun comes under their status.
    const failed = ErrorEnvelope.safeParse(value);
    if (failed.success) {
      const { code, message, details, hint } = failed.data.error;
      throw new FuseApiError({ status: errorStatus[code], code, reason: message, details, hint, body: text });
    }
    throw new FuseError(
      `${call.method} ${call.path}: the answer is not what the API promises: ${z.prettifyError(parsed.error)}`,
      { cause: parsed.error },
    );
  }

  /** The answer as it is. */
  text(call: Call): Promise<string> {
    return this.#attempts(call, (response) => response.text());
  }

  /** For calls whose answer has no body. A repeated delete that finds nothing did what it was asked to. */
  async none(call: Call): Promise<void> {
    await this.headers(call);
  }

  /** The same, with what the answer says in its headers: nothing when it was lost and the repeated delete found nothing. */
  headers(call: Call): Promise<Headers> {
    return this.#attempts(call, async (response) => {
      await response.body?.cancel();
      return response.headers;
    });
  }

  /** A successful response whose body is still to be read: no deadline and no retry once its head has come. */
  open(call: Call): Promise<Response> {
    return this.#attempts(call, (response) => Promise.resolve(response));
  }

  async #attempts<T>(call: Call, read: (response: Response) => Promise<T>): Promise<T> {
    const timeoutMs = call.timeoutMs === undefined ? this.config.timeoutMs : (call.timeoutMs ?? undefined);
    const late = new AbortController();
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => late.abort(), timeoutMs);
    const signal = call.signal === undefined ? late.signal : AbortSignal.any([call.signal, late.signal]);
    try {
      return await withRetries({ ...this.config, repeat: call.repeat, signal }, (attempt) =>
        this.#attempt(call, read, signal, attempt),
      );
    } catch (cause) {
      if (call.signal?.aborted) throw call.signal.reason;
      if (!late.signal.aborted) throw cause;
      throw new FuseTimeoutError(`${call.method} ${call.path} took longer than ${timeoutMs} ms`, { cause, sent: true });
    } finally {
      clearTimeout(timer);
    }
  }

  async #attempt<T>(
    call: Call,
    read: (response: Response) => Promise<T>,
    signal: AbortSignal,
    attempt: number,
  ): Promise<T> {
    const stalled = new AbortController();
    try {
      const fetching = this.#fetch(call, AbortSignal.any([signal, stalled.signal]));
      const response = await (call.stallMs === undefined ? fetching : within(call.stallMs, fetching));
      if (response.ok) return await read(response);
      const error = apiErrorFrom(response, await response.text(), Date.now());
      // The attempt before this one had done it; only its answer was lost.
      if (call.method === 'DELETE' && attempt > 0 && isNotFound(error)) return await read(new Response(null));
      throw error;
    } catch (error) {
      if (signal.aborted || error instanceof FuseError) throw error;
      stalled.abort(error);
      throw connectionError(call, error);
    }
  }

  /** What every request of ours carries. */
  headersOf(): Headers {
    const { token, tenant, userAgent, requestId, headers: own } = this.config;
    const headers = new Headers(own);
    if (tenant !== undefined) headers.set(TENANT_HEADER, tenant);
    if (token !== undefined) headers.set('Authorization', `Bearer ${token}`);
    headers.set('User-Agent', userAgent);
    if (requestId !== undefined) headers.set('X-Request-ID', requestId());
    return headers;
  }

  #fetch(call: Call, signal: AbortSignal): Promise<Response> {
    const { baseUrl, userAgent } = this.config;
    const url = queried(new URL(call.path, baseUrl), call.query ?? {});
    const headers = call.anonymous ? new Headers({ 'User-Agent': userAgent }) : this.headersOf();
    if (call.json !== undefined) headers.set('Content-Type', 'application/json');
    for (const [name, value] of Object.entries(call.headers ?? {})) headers.set(name, value);
    const body = call.json !== undefined ? JSON.stringify(call.json) : call.body?.();
    return this.config.fetch(url, {
      method: call.method,
      headers,
      ...(body === undefined ? {} : { body: body as NonNullable<RequestInit['body']> }), // it wants byte arrays over unshared memory
      ...(body instanceof ReadableStream ? { duplex: 'half' as const } : {}),
      signal,
    });
  }
}

async function textOf(response: Response, stallMs: number | undefined): Promise<string> {
  if (stallMs === undefined || response.body === null) return await response.text();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (let text = ''; ; ) {
    const { done, value } = await within(stallMs, reader.read());
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
  }
}

function connectionError(call: Call, cause: unknown): FuseConnectionError {
  const sent = !neverSent(cause);
  const why = innermostMessage(cause);
  return new FuseConnectionError(
    `${call.method} ${call.path}: ${sent ? 'the connection broke before the whole answer came' : 'the server cannot be reached'}: ${why}`,
    { cause, sent },
  );
}

function neverSent(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.length > 0 && error.errors.every(neverSent);
  if (!(error instanceof Error)) return false;
  if ('code' in error && typeof error.code === 'string' && neverSentCodes.has(error.code)) return true;
  return neverSent(error.cause);
}

function innermostMessage(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return innermostMessage(error.errors[0]);
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : innermostMessage(error.cause);
}
