/**
 * For tests: an HTTP server that keeps to the contract where a client can tell (idempotency keys, resumable events, signed
 * downloads) and breaks connections where a test says so. It runs nothing: what a run does is scripted.
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Run, RunEvent, Snapshot } from '@fuse/contract';
import { type Answer, AT, environment, execResult, notFound, uploaded } from './test-answers.ts';

export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
}

export interface Script {
  /** Events of every run, after `queued`. */
  events: RunEvent[];
  outputs: { path: string; bytes: Uint8Array }[];
  /** Bytes of each event-stream connection, in turn, before it is broken; absent: all of it. */
  cutEventsAfterBytes: number[];
  /** Requests to do, and then break the connection without an answer. */
  loseAnswers: { method: string; times: number };
  /** Answers given instead, in turn, to any request. */
  refusals: { status: number; headers?: Record<string, string>; body: unknown }[];
  /** Event streams stay open after the scripted events. */
  endless: boolean;
  /** Milliseconds before a create is answered. */
  createDelayMs: number;
  /** Bytes of each download, in turn, before it is broken. */
  cutDownloadsAfterBytes: number[];
}

export class TestServer implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly runs = new Map<string, Run>();
  readonly cancelled = new Set<string>();
  readonly script: Script;
  readonly snapshots = new Map<string, Snapshot>();
  /** Of environments, each once it is done. */
  readonly actions: string[] = [];
  execs = 0;
  readonly #keys = new Map<string, string>();
  readonly #server: Server;

  private constructor(script: Partial<Script>) {
    this.script = {
      events: [],
      outputs: [],
      cutEventsAfterBytes: [],
      loseAnswers: { method: '', times: 0 },
      refusals: [],
      endless: false,
      createDelayMs: 0,
      cutDownloadsAfterBytes: [],
      ...script,
    };
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch(() => response.destroy());
    });
  }

  static async start(script: Partial<Script> = {}): Promise<TestServer> {
    const server = new TestServer(script);
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  dropConnections(): void {
    this.#server.closeAllConnections();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.dropConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const url = new URL(request.url ?? '/', this.url);
    const body = Buffer.concat(chunks).toString('latin1');
    const method = request.method ?? '';
    this.seen.push({ method, path: url.pathname + url.search, headers: request.headers, body });
    const refusal = this.script.refusals.shift();
    if (refusal !== undefined) {
      response.writeHead(refusal.status, { 'X-Request-ID': 'req_1', ...refusal.headers });
      response.end(typeof refusal.body === 'string' ? refusal.body : JSON.stringify(refusal.body));
      return;
    }
    const answer = await this.#answer(method, url, request, response, body);
    if (answer === undefined) return;
    if (this.script.loseAnswers.method === method && this.script.loseAnswers.times-- > 0) {
      response.destroy();
      return;
    }
    const { status, headers } = answer;
    if (answer.body === undefined) response.writeHead(status, headers).end();
    else response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer.body));
  }

  async #answer(
    method: string,
    url: URL,
    request: IncomingMessage,
    response: ServerResponse,
    body: string,
  ): Promise<Answer | undefined> {
    const [, , noun, id, part] = url.pathname.split('/');
    if (method === 'POST' && noun === 'runs' && id === undefined) return await this.#create(request);
    if (method === 'POST' && noun === 'files') return { status: 201, body: uploaded(body) };
    if (noun === 'environments' && method === 'POST') {
      if (part === 'snapshots') return this.#snapshot(id ?? '', body);
      return this.#act(url.searchParams.get('action') ?? 'create', id ?? '', body);
    }
    if (noun === 'snapshots') return this.#answerOfSnapshots(method, url, id);
    if (noun === 'environments' && method === 'DELETE') {
      const known = this.runs.delete(id ?? '');
      return known ? { status: 200, body: {} } : notFound(id);
    }
    const run = this.runs.get(id ?? '');
    if (noun === 'downloads') return this.#download(url, response);
    if (run === undefined) return notFound(id);
    if (part === 'events') return this.#streamEvents(run, request, response);
    if (part === 'outputs') return { status: 200, body: { outputs: run.outputs } };
    if (url.searchParams.get('action') === 'cancel') this.cancelled.add(run.id);
    return { status: 200, body: run };
  }

  #act(action: string, id: string, body: string): Answer {
    if (action === 'exec') {
      this.execs++;
      return { status: 200, body: execResult };
    }
    this.actions.push(action);
    if (action === 'pause' || action === 'resume')
      return { status: 200, body: environment(id, action === 'pause' ? 'paused' : 'running') };
    const { count } = JSON.parse(body) as { count?: number }; // the SDK's own
    if (action === 'create' || count === undefined) return { status: 201, body: environment(`new-${id}`) };
    const environments = Array.from({ length: count }, (_, i) => environment(`new-${id}-${i}`));
    return { status: 201, body: { snapshot_id: 'snap-1', environments } };
  }

  #snapshot(vmId: string, body: string): Answer {
    const snapshot: Snapshot = {
      ...(JSON.parse(body) as object),
      id: `snap-${this.snapshots.size + 1}`,
      vm_id: vmId,
      mode: 'manual',
      state: 'ready',
      include_memory: true,
      image: 'base',
      spec: {},
      created_at: AT,
      updated_at: AT,
    };
    this.snapshots.set(snapshot.id, snapshot);
    return { status: 201, body: snapshot };
  }

  /** Pages of two. */
  #answerOfSnapshots(method: string, url: URL, id = ''): Answer {
    const from = Number(url.searchParams.get('cursor'));
    const all = [...this.snapshots.values()];
    if (id === '')
      return {
        status: 200,
        body: {
          snapshots: all.slice(from, from + 2),
          ...(all.length > from + 2 ? { next_cursor: `${from + 2}` } : {}),
        },
      };
    if (id === 'resolve') {
      const snapshot = all.find((each) => each.layer_key === url.searchParams.get('layer_key'));
      return { status: 200, body: snapshot === undefined ? { found: false } : { found: true, snapshot } };
    }
    const snapshot = this.snapshots.get(id);
    if (snapshot === undefined) return notFound(id);
    if (method === 'GET') return { status: 200, body: snapshot };
    if (method === 'POST') this.actions.push('restore');
    else this.snapshots.delete(id);
    const headers = { 'fuse-freed-host-bytes': '3000000000', 'fuse-freed-store-bytes': '7' };
    return { status: 204, ...(method === 'DELETE' ? { headers } : {}) };
  }

  async #create(request: IncomingMessage): Promise<Answer> {
    await new Promise((resolve) => setTimeout(resolve, this.script.createDelayMs));
    const key = String(request.headers['idempotency-key']);
    const id = this.#keys.get(key) ?? `run-${this.runs.size + 1}`;
    this.#keys.set(key, id);
    const run: Run = this.runs.get(id) ?? {
      id,
      state: 'succeeded',
      image: 'base',
      limits: { cpus: 1, ram_mb: 512, storage_gb: 2, timeout_ms: 1000 },
      exit_code: 0,
      stdout: '',
      stderr: '',
      encoding: 'utf8',
      outputs: this.script.outputs.map(({ path, bytes }, position) => ({
        path,
        kind: 'file',
        size_bytes: bytes.length,
        sha256: createHash('sha256').update(bytes).digest('hex'),
        content_type: 'application/octet-stream',
        url: `/v1/downloads/${id}/${position}?signature=fresh`,
        url_expires_at: AT,
      })),
      timings: {},
      created_at: AT,
      updated_at: AT,
    };
    this.runs.set(id, run);
    return { status: 202, body: run };
  }

  #streamEvents(run: Run, request: IncomingMessage, response: ServerResponse): undefined {
    const last = request.headers['last-event-id'];
    const from = last === undefined ? 0 : Number(String(last).slice('event-'.length)) + 1;
    const text = this.script.events
      .map((event, index) => ({ index, data: JSON.stringify({ ...event, run_id: run.id }) }))
      .slice(from)
      .map(({ index, data }) => `id: event-${index}\ndata: ${data}\n\n`)
      .join('');
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const cut = this.script.cutEventsAfterBytes.shift();
    if (cut !== undefined) breakOff(response, Buffer.from(`: hello\n\n${text}`), cut);
    else if (this.script.endless) response.write(text);
    else response.end(text);
  }

  #download(url: URL, response: ServerResponse): Answer | undefined {
    if (url.searchParams.get('signature') !== 'fresh')
      return { status: 403, body: { error: { code: 'forbidden', message: 'this download URL has expired' } } };
    const bytes = this.script.outputs[Number(url.pathname.split('/')[4])]?.bytes ?? new Uint8Array();
    response.writeHead(200, { 'Content-Length': bytes.length });
    const cut = this.script.cutDownloadsAfterBytes.shift();
    if (cut !== undefined) breakOff(response, Buffer.from(bytes), cut);
    else response.end(bytes);
    return undefined;
  }
}

function breakOff(response: ServerResponse, bytes: Buffer, after: number): void {
  response.write(bytes.subarray(0, after), () => setImmediate(() => response.destroy()));
}

/** Events of a run that writes `stdout` in these pieces and ends well. */
export function eventsOf(pieces: readonly Uint8Array[]): RunEvent[] {
  const state = (name: 'running' | 'succeeded'): RunEvent => ({ event: 'state', run_id: '', state: name, at: AT });
  return [
    state('running'),
    ...pieces.map((piece, index) => ({
      event: index % 2 === 0 ? ('stdout' as const) : ('stderr' as const),
      run_id: '',
      data_base64: Buffer.from(piece).toString('base64'),
    })),
    state('succeeded'),
  ];
}
