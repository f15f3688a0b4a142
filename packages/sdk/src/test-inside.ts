/**
 * For tests: a server that keeps to the contract of execs, files, terminals and tunnels where a client can tell, over real HTTP and WebSockets, and breaks
 * connections at random where a test says so. Its commands are scripted frames; their stdin is kept.
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import {
  type Exec,
  type ExecExit,
  encodeFrame,
  FrameParser,
  frameType,
  TUNNEL_END,
  type WatchEvent,
} from '@fuse/contract';
import { WebSocketServer } from 'ws';
import { drained } from './node/drained.ts';
import { AT } from './test-answers.ts';

export const exit = (fields: Partial<ExecExit> = {}): ExecExit => ({
  exit_code: 0,
  timed_out: false,
  oom_killed: false,
  stdout_bytes: 0,
  stderr_bytes: 0,
  duration_ms: 1,
  ...fields,
});

export const json = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

/** A request to stdin that is cut has brought fewer. */
const CUT_STDIN_BYTES = 500_000;

export class TestExec {
  readonly id: string;
  starts = 1;
  log: Uint8Array = new Uint8Array();
  /** Bytes of the log before this one are not kept. */
  keptFrom = 0;
  exit: ExecExit | undefined;
  lost: string | undefined;
  stdin = Buffer.alloc(0);
  stdinClosed = false;
  signals: unknown[] = [];
  killed = false;
  readonly #watchers = new Set<() => void>();

  constructor(id: string) {
    this.id = id;
  }

  write(stream: 'stdout' | 'stderr', bytes: Uint8Array): void {
    this.#append(encodeFrame(frameType[stream], bytes));
  }

  end(fields: Partial<ExecExit> = {}): void {
    this.exit = exit(fields);
    this.#append(encodeFrame(frameType.exit, json(this.exit)));
  }

  lose(why: string): void {
    this.lost = why;
    this.#tell();
  }

  get isOver(): boolean {
    return this.exit !== undefined || this.lost !== undefined;
  }

  /** Something changed; resolves at once when it is over. */
  changed(): Promise<void> {
    return this.isOver ? Promise.resolve() : new Promise((resolve) => this.#watchers.add(resolve));
  }

  get view(): Exec {
    return {
      id: this.id,
      state: this.lost !== undefined ? 'lost' : this.exit !== undefined ? 'exited' : 'running',
      command: ['x'],
      stdin_open: !this.stdinClosed,
      created_at: AT,
      log_end: this.log.length,
      ...(this.exit === undefined ? {} : { exit: this.exit }),
      ...(this.lost === undefined ? {} : { error: this.lost }),
    };
  }

  #append(frame: Uint8Array): void {
    this.log = Buffer.concat([this.log, frame]);
    this.#tell();
  }

  #tell(): void {
    for (const tell of this.#watchers) tell();
    this.#watchers.clear();
  }
}

export interface InsideScript {
  /** In [0, 1): of the bytes of any answer, or of the first half megabyte of stdin, after which it is broken off. Undefined: never. */
  cut: () => number | undefined;
  /** Done when an exec is started. */
  onStart: (exec: TestExec, request: { id: string; cmd?: string[] }) => void;
  onStdin: (exec: TestExec) => void;
  /** Largest piece of an answer that is written at once. */
  pieceBytes: number;
  files: Map<string, Uint8Array>;
  watch: WatchEvent[][];
  /** Where tunnels lead. */
  tunnelPort: number;
  heartbeats: boolean;
}

export class TestInside implements AsyncDisposable {
  readonly execs = new Map<string, TestExec>();
  readonly script: InsideScript;
  readonly seen: string[] = [];
  readonly tickets = new Set<string>();
  readonly sockets = new Set<Socket>();
  readonly sizes: { rows: number; cols: number }[] = [];
  readonly #server: Server;
  readonly #webSockets = new WebSocketServer({ noServer: true });

  private constructor(script: Partial<InsideScript>) {
    this.script = {
      cut: () => undefined,
      onStart: () => {},
      onStdin: () => {},
      pieceBytes: 65_536,
      files: new Map(),
      watch: [],
      tunnelPort: 0,
      heartbeats: false,
      ...script,
    };
    this.#server = createServer((request, response) => {
      const { socket } = request; // a request that is left before its end has none
      this.#handle(request, response).catch(() => socket.destroy());
    });
    this.#server.on('connection', (socket: Socket) => {
      this.sockets.add(socket);
      socket.on('close', () => this.sockets.delete(socket));
    });
    this.#server.on('upgrade', (request, socket: Socket, head) => this.#upgrade(request, socket, head));
  }

  static async start(script: Partial<InsideScript> = {}): Promise<TestInside> {
    const server = new TestInside(script);
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  exec(id: string): TestExec {
    const exec = this.execs.get(id);
    if (exec === undefined) throw new Error(`no exec ${id}`);
    return exec;
  }

  cutAll(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cutAll();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.url);
    const method = request.method ?? '';
    this.seen.push(`${method} ${url.pathname}${url.search}`);
    const [, , , , noun, id = '', part] = url.pathname.split('/');
    const query = url.searchParams;
    if (url.searchParams.get('action') === 'exec') return await this.#oneShot(request, response);
    if (noun === 'tickets') {
      const ticket = `ticket-${this.tickets.size}`;
      this.tickets.add(ticket);
      return this.#answer(response, 201, { ticket, expires_at: AT });
    }
    if (noun === 'files') return await this.#file(method, id, query, request, response);
    if (noun !== 'execs') return this.#refuse(response, 404, 'route_not_found');
    if (id === '') return await this.#start(request, response, query);
    const exec = this.execs.get(id);
    if (exec === undefined) return this.#refuse(response, 404, 'not_found');
    if (part === 'log') return await this.#log(exec, query, response);
    if (part === 'stdin') return await this.#stdin(exec, query, request, response);
    if (part === 'result') return this.#answer(response, 200, resultOf(exec));
    if (part === 'signal') {
      exec.signals.push(JSON.parse((await bodyOf(request)).toString()));
      return void response.writeHead(204).end();
    }
    if (method === 'DELETE') {
      exec.killed = true;
      if (!exec.isOver) exec.end({ exit_code: 137, signal: 'SIGKILL' });
      return void response.writeHead(204).end();
    }
    const late = new Promise((resolve) => setTimeout(resolve, Number(query.get('wait_ms'))));
    const over = (async () => {
      while (!exec.isOver) await exec.changed();
    })();
    await Promise.race([late, over]);
    this.#answer(response, 200, exec.view);
  }

  #begin(request: { id: string }): TestExec {
    const known = this.execs.get(request.id);
    if (known !== undefined) return known;
    const exec = new TestExec(request.id);
    this.execs.set(exec.id, exec);
    this.script.onStart(exec, request);
    return exec;
  }

  async #oneShot(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const exec = this.#begin(JSON.parse((await bodyOf(request)).toString()) as { id: string });
    if (this.script.heartbeats) response.writeHead(200).write(' \n ');
    while (!exec.isOver) await exec.changed();
    if (!this.script.heartbeats) return this.#answer(response, 200, resultOf(exec));
    const answer = exec.lost === undefined ? resultOf(exec) : { error: { code: 'vm_lost', message: exec.lost } };
    response.end(JSON.stringify(answer));
  }

  async #start(request: IncomingMessage, response: ServerResponse, query: URLSearchParams): Promise<void> {
    const exec = this.#begin(JSON.parse((await bodyOf(request)).toString()) as { id: string });
    if (query.get('stream') === 'frames') return await this.#log(exec, new URLSearchParams('follow=1'), response);
    this.#answer(response, 201, exec.view);
  }

  async #log(exec: TestExec, query: URLSearchParams, response: ServerResponse): Promise<void> {
    let at = Number(query.get('offset') ?? 0);
    const tail = query.get('tail');
    if (tail !== null) at = lastFrames(exec.log, Number(tail));
    response.writeHead(200, { 'Fuse-Log-Offset': String(at) }).flushHeaders();
    if (at < exec.keptFrom) {
      response.write(encodeFrame(frameType.gap, json({ from: at, to: exec.keptFrom })));
      at = exec.keptFrom;
    }
    for (;;) {
      const whole = exec.log.subarray(at);
      at = exec.log.length;
      if (!(await this.#send(response, whole))) return;
      if (this.script.heartbeats) response.write(encodeFrame(frameType.heartbeat, new Uint8Array()));
      if (exec.lost !== undefined) return void response.socket?.destroySoon();
      if (exec.isOver || query.get('follow') !== '1') break;
      await exec.changed();
    }
    response.end();
  }

  /** False when it was cut. */
  async #send(response: ServerResponse, bytes: Uint8Array): Promise<boolean> {
    const cut = bytes.length === 0 ? undefined : this.script.cut();
    const end = cut === undefined ? bytes.length : Math.floor(cut * bytes.length);
    for (let at = 0; at < end; ) {
      const size = 1 + Math.floor(Math.random() * this.script.pieceBytes);
      const piece = bytes.subarray(at, Math.min(end, at + size));
      at += piece.length;
      if (response.destroyed) return false;
      if (!response.write(piece)) await drained(response);
    }
    if (cut === undefined) return true;
    await new Promise((resolve) => setImmediate(resolve));
    response.destroy();
    return false;
  }

  /** Taken as it comes: what came before a cut has arrived. */
  async #stdin(
    exec: TestExec,
    query: URLSearchParams,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    if (exec.stdinClosed) return this.#refuse(response, 409, 'conflict', { reason: 'stdin_closed' });
    const cut = this.script.cut();
    const given = query.get('offset');
    let at = given === null ? exec.stdin.length : Number(given);
    if (at > exec.stdin.length) {
      const details = { reason: 'stdin_ahead', stdin_bytes: String(exec.stdin.length) };
      return this.#refuse(response, 409, 'conflict', details);
    }
    let left = cut === undefined ? Number.POSITIVE_INFINITY : Math.floor(cut * CUT_STDIN_BYTES);
    const { socket } = request;
    for await (const chunk of request) {
      const part = (chunk as Buffer).subarray(0, left); // no encoding is set
      exec.stdin = Buffer.concat([exec.stdin, part.subarray(exec.stdin.length - at)]);
      at += part.length;
      left -= part.length;
      if (left === 0) break;
    }
    if (cut !== undefined) return void socket.destroy();
    exec.stdinClosed = query.get('end') === '1';
    this.script.onStdin(exec);
    this.#answer(response, 200, { stdin_bytes: exec.stdin.length, closed: exec.stdinClosed });
  }

  async #file(
    method: string,
    operation: string,
    query: URLSearchParams,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const path = query.get('path') ?? '';
    if (operation === 'watch') {
      response.writeHead(200);
      for (const event of this.script.watch.shift() ?? []) response.write(`${JSON.stringify(event)}\n`);
      return void setTimeout(() => (this.script.watch.length === 0 ? response.end() : response.destroy()), 20);
    }
    if (method === 'POST') return this.#answer(response, 200, {});
    if (method === 'PUT') {
      const cut = this.script.cut();
      const body = await bodyOf(request);
      if (cut !== undefined && cut < 0.5) return void request.socket.destroy();
      this.script.files.set(path, body);
      if (cut !== undefined) return void request.socket.destroy();
      const sha256 = createHash('sha256').update(body).digest('hex');
      return this.#answer(response, 201, { path, size_bytes: body.length, sha256 });
    }
    const bytes = this.script.files.get(path);
    if (bytes === undefined) return this.#refuse(response, 404, 'not_found');
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    const from = range === null ? 0 : Number(range[1]);
    const end = range === null || range[2] === '' ? bytes.length : Number(range[2]) + 1;
    const part = bytes.subarray(from, end);
    response.writeHead(range === null ? 200 : 206, {
      'Content-Length': part.length,
      'Fuse-File-Mode': '0640',
      'Last-Modified': new Date(bytes.length).toUTCString(),
      ...(range === null ? {} : { 'Content-Range': `bytes ${from}-${from + part.length - 1}/${bytes.length}` }),
    });
    if (await this.#send(response, part)) response.end();
  }

  #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const url = new URL(request.url ?? '/', this.url);
    this.seen.push(`UPGRADE ${url.pathname}${url.search} ${request.headers.authorization ?? ''}`);
    const ticket = url.searchParams.get('ticket');
    if (request.headers.authorization !== 'Bearer secret' && !(ticket !== null && this.tickets.delete(ticket))) {
      const body = JSON.stringify({ error: { code: 'unauthorized', message: 'no' } });
      socket.end(`HTTP/1.1 401 Unauthorized\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`);
      return;
    }
    const port = /\/ports\/\d+\/connect$/.test(url.pathname);
    this.#webSockets.handleUpgrade(request, socket, head, (ws) => {
      if (port) this.#tunnel(ws);
      else this.#terminal(ws, url.searchParams);
    });
  }

  #tunnel(ws: import('ws').WebSocket): void {
    const server = connect({ port: this.script.tunnelPort, host: '127.0.0.1', allowHalfOpen: true });
    let open = 2;
    const ended = () => {
      if (--open === 0) ws.close(1000);
    };
    ws.on('message', (data: Buffer, isBinary) => {
      if (isBinary) {
        if (!server.write(data)) ws.pause();
      } else if (data.toString() === TUNNEL_END) {
        server.end();
        ended();
      }
    });
    server.on('drain', () => ws.resume());
    server.on('data', (chunk) => ws.send(chunk));
    server.on('end', () => {
      ws.send(TUNNEL_END);
      ended();
    });
    server.on('error', () => ws.close(1011, 'reset'));
    ws.on('close', () => server.destroy());
  }

  #terminal(ws: import('ws').WebSocket, query: URLSearchParams): void {
    const exec = this.#begin({ id: query.get('session') ?? '' });
    const size = { rows: Number(query.get('rows')), cols: Number(query.get('cols')) };
    this.sizes.push(size);
    let at = lastFrames(exec.log, Number(query.get('scrollback')));
    const opened = { exec_id: exec.id, offset: at, stdin_bytes: exec.stdin.length, stdin_closed: false, tty: size };
    ws.send(encodeFrame(frameType.open, json(opened)));
    const parser = new FrameParser();
    ws.on('message', (data: Buffer) => {
      for (const { type, payload } of parser.push(data)) {
        if (type === frameType.resize) this.sizes.push(JSON.parse(Buffer.from(payload).toString()));
        if (type === frameType.stdin) {
          exec.stdin = Buffer.concat([exec.stdin, payload]);
          this.script.onStdin(exec);
        }
      }
    });
    const follow = async () => {
      while (ws.readyState === ws.OPEN) {
        if (exec.log.length > at) ws.send(exec.log.subarray(at));
        at = exec.log.length;
        if (exec.exit !== undefined) return ws.close(1000);
        if (exec.lost !== undefined) return ws.close(1011, exec.lost);
        await exec.changed();
      }
    };
    void follow();
  }

  #answer(response: ServerResponse, status: number, body: unknown): void {
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
  }

  #refuse(response: ServerResponse, status: number, code: string, details: Record<string, string> = {}): void {
    this.#answer(response, status, { error: { code, message: code, details } });
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/** Where the frames of the last so many bytes begin. */
function lastFrames(log: Uint8Array, bytes: number): number {
  let at = 0;
  while (log.length - at > bytes) at += 8 + new DataView(log.buffer, log.byteOffset + at).getUint32(4);
  return at;
}

function resultOf(exec: TestExec) {
  const text = { stdout: '', stderr: '' };
  const parser = new FrameParser();
  for (const { type, payload } of parser.push(exec.log))
    if (type === frameType.stdout || type === frameType.stderr)
      text[type === frameType.stdout ? 'stdout' : 'stderr'] += Buffer.from(payload).toString();
  return { exec_id: exec.id, ...text, encoding: 'utf8', truncated: false, ...exec.exit };
}
