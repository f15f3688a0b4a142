/** The file routes of one environment, by plain HTTP. */
import { createHash } from 'node:crypto';
import http from 'node:http';
import type { Readable } from 'node:stream';
import type { LocalStack } from './local-stack.ts';

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

export interface FileAnswer {
  status: number;
  headers: http.IncomingHttpHeaders;
  bytes: Buffer;
  /** When it is JSON. */
  json: FileJson;
}

/** What tests read of it, none of it checked before. */
export interface FileJson {
  path: string;
  size_bytes: number;
  sha256: string;
  error: { code: string; message: string; hint?: string; details: Record<string, string> };
}

export class FilesApi {
  readonly #stack: LocalStack;
  readonly id: string;

  constructor(stack: LocalStack, id: string) {
    this.#stack = stack;
    this.id = id;
  }

  path(route: string, query: Record<string, string> = {}): string {
    return `/v1/environments/${this.id}/${route}?${new URLSearchParams(query)}`;
  }

  put(path: string, body: Uint8Array | Readable, query: Record<string, string> = {}): Promise<FileAnswer> {
    return this.send('PUT', this.path('files', { path, ...query }), body);
  }

  get(path: string, headers: Record<string, string> = {}): Promise<FileAnswer> {
    return this.send('GET', this.path('files', { path }), undefined, headers);
  }

  /** The answer of a file operation that succeeds. */
  async operate<T>(name: string, body: unknown): Promise<T> {
    const { status, bytes } = await this.send('POST', this.path(`files/${name}`), Buffer.from(JSON.stringify(body)));
    if (status !== 200) throw new Error(`${name}: ${status} ${bytes}`);
    return JSON.parse(bytes.toString()) as T; // the caller names the operation's own
  }

  /** The error of one that fails. */
  async refusal(name: string, body: unknown): Promise<FileJson['error'] & { status: number }> {
    const { status, json } = await this.send('POST', this.path(`files/${name}`), Buffer.from(JSON.stringify(body)));
    return { status, ...json.error };
  }

  /** A stream is destroyed when the answer comes before its end. */
  send(
    method: string,
    path: string,
    body?: Uint8Array | Readable,
    headers: Record<string, string> = {},
    port = this.#stack.port,
  ): Promise<FileAnswer> {
    return new Promise((resolve, reject) => {
      const request = http.request({
        ...{ host: '127.0.0.1', port, method, path, agent: false },
        headers: { authorization: `Bearer ${this.#stack.token}`, ...headers },
      });
      request.on('error', reject);
      request.on('response', (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          if (!(body === undefined || body instanceof Uint8Array)) body.destroy();
          const bytes = Buffer.concat(chunks);
          const isJson = response.headers['content-type']?.startsWith('application/json') ?? false;
          const json = (isJson ? JSON.parse(bytes.toString()) : undefined) as FileJson;
          resolve({ status: response.statusCode ?? 0, headers: response.headers, bytes, json });
        });
      });
      if (body === undefined || body instanceof Uint8Array) request.end(body);
      else body.on('error', (error) => request.destroy(error)).pipe(request);
    });
  }

  /** The head, and the body as it comes. */
  open(method: string, path: string): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      const request = http.request({
        ...{ host: '127.0.0.1', port: this.#stack.port, method, path, agent: false },
        headers: { authorization: `Bearer ${this.#stack.token}` },
      });
      request.on('error', reject).on('response', resolve).end();
    });
  }
}
