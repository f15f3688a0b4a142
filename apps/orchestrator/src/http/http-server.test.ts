import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { AppError } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { openEventStream } from './event-stream.ts';
import { type App, createHttpServer } from './http-server.ts';
import { incomingBody } from './incoming-body.ts';
import { useRawBodies } from './json-bodies.ts';
import { createMetrics } from './metrics.ts';
import { registerOperationalRoutes } from './operational-routes.ts';
import { masterAlone } from './test-authenticator.ts';

const TOKEN = 'the-token';
const lines: string[] = [];
const log = createLogger({ name: 'test', destination: { write: (line) => void lines.push(line) } });

const Thing = z.object({
  name: z.string().min(1),
  size: z.number().int().optional(),
  nested: z.object({ labels: z.record(z.string().regex(/^[a-z]+$/, 'must be small letters'), z.string()) }).optional(),
  list: z.array(z.string()).optional(),
});

let app: App;
let url: string;
let sse: AbortSignal | undefined;

beforeAll(async () => {
  const metrics = createMetrics();
  app = createHttpServer({
    version: '1.2.3',
    authenticator: masterAlone(TOKEN),
    log,
    metrics,
    bodyDeadlineMs: 1_000,
    registerRoutes(app) {
      registerOperationalRoutes(app, {
        version: '1.2.3',
        metrics,
        readinessChecks: { state_store: async () => {}, fleet: async () => Promise.reject(new Error('x'.repeat(300))) },
      });
      app.post('/things', { schema: { body: Thing } }, async (request) => request.body);
      void app.register(async (scope: App) => {
        useRawBodies(scope);
        scope.post('/uploads', (request) => text(incomingBody(request, 200)));
      });
      app.get('/things/:id', async (request) => ({ id: (request.params as { id: string }).id }));
      app.get('/broken', async () => Promise.reject(new Error('the password is hunter2')));
      app.get('/full', async () =>
        Promise.reject(new AppError('unavailable', 'no room', { retryAfterSeconds: 5, hint: 'Wait.' })),
      );
      app.get('/open', { config: { auth: 'none' } }, async () => ({}));
      app.get('/stream', async (_request, reply) => {
        const stream = openEventStream(reply, 50);
        sse = stream.signal;
        await stream.send({ id: 'a', data: { line: 'one\ntwo' } });
      });
      app.get('/flood', async (_request, reply) => {
        const stream = openEventStream(reply);
        sse = stream.signal;
        while (!stream.signal.aborted) await stream.send({ data: 'x'.repeat(100_000) }).catch(() => {});
      });
    },
  });
  url = await app.listen({ port: 0, host: '127.0.0.1' });
});
afterAll(() => app.close());

const auth = { authorization: `Bearer ${TOKEN}` };
const send = async (
  method: string,
  path: string,
  body?: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = {},
) => {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { ...auth, ...headers },
    ...(body === undefined ? {} : { body }),
  });
  return { response, status: response.status, text: await response.text() };
};

describe('every answer', () => {
  it('names server and request, and echoes a request id that is well formed', async () => {
    const { response } = await send('GET', '/things/1');
    expect(response.headers.get('server')).toBe('fuse-orchestrator/1.2.3');
    expect(response.headers.get('x-request-id')).toMatch(/^req_[0-9a-f]{32}$/);
    const echoed = await send('GET', '/nowhere', undefined, { 'x-request-id': 'my-id_1' });
    expect(echoed.response.headers.get('x-request-id')).toBe('my-id_1');
    const replaced = await send('GET', '/things/1', undefined, { 'x-request-id': 'no spaces' });
    expect(replaced.response.headers.get('x-request-id')).toMatch(/^req_/);
  });

  it('ends JSON with a newline', async () => {
    for (const path of ['/things/1', '/nowhere', '/health']) expect((await send('GET', path)).text).toMatch(/\}\n$/);
  });

  it('is written to the log as one line, without token, body or query', async () => {
    lines.length = 0;
    await send('POST', '/things?secret=q', JSON.stringify({ name: 'private' }));
    const written = lines.filter((line) => line.includes('"request"'));
    expect(written.length).toBe(1);
    expect(JSON.parse(written[0] ?? '')).toMatchObject({
      method: 'POST',
      route: '/things',
      path: '/things',
      status: 200,
    });
    for (const secret of [TOKEN, 'private', 'secret']) expect(lines.join()).not.toContain(secret);
  });
});

describe('credentials', () => {
  it('are needed, in exactly one form', async () => {
    const status = async (headers: Record<string, string>) => {
      const response = await fetch(`${url}/things/1`, { headers });
      return { status: response.status, body: await response.json() };
    };
    expect(await status(auth)).toMatchObject({ status: 200 });
    for (const authorization of [`bearer ${TOKEN}`, `Bearer  ${TOKEN}`, TOKEN, 'Basic abc', 'Bearer '])
      expect(await status({ authorization })).toMatchObject({
        status: 401,
        body: { error: { code: 'unauthorized', message: 'missing or malformed credentials' } },
      });
    expect(await status({})).toMatchObject({ status: 401, body: { error: { code: 'unauthorized' } } });
    expect(await status({ authorization: 'Bearer wrong' })).toMatchObject({
      status: 401,
      body: { error: { message: 'invalid token' } },
    });
  });

  it('are not asked for by probes, open routes and unknown routes', async () => {
    for (const [path, status] of [
      ['/health', 200],
      ['/v1/version', 200],
      ['/metrics', 200],
      ['/open', 200],
      ['/nowhere', 404],
    ] as const)
      expect((await fetch(`${url}${path}`)).status).toBe(status);
  });

  it('are checked before the body is read', async () => {
    const response = await fetch(`${url}/things`, { method: 'POST', body: '{broken' });
    expect(response.status).toBe(401);
  });
});

describe('routes', () => {
  it('that do not exist are 404 route_not_found, with another method 405 and empty', async () => {
    const unknown = await send('GET', '/nowhere/at/all?x=1');
    expect(unknown.status).toBe(404);
    expect(JSON.parse(unknown.text)).toEqual({
      error: { code: 'route_not_found', message: 'no such route: GET /nowhere/at/all' },
    });
    for (const [method, path] of [
      ['DELETE', '/things'],
      ['PATCH', '/things/1'],
      ['HEAD', '/things/1'],
    ] as const)
      expect(await send(method, path)).toMatchObject({ status: 405, text: '' });
  });

  it('refuse a path that cannot be decoded', async () => {
    const { status, text } = await send('GET', '/things/%zz');
    expect(status).toBe(400);
    expect(JSON.parse(text).error.code).toBe('invalid_argument');
  });

  it('tell whether we are ready, without an error key, cutting what is long', async () => {
    const { status, text } = await send('GET', '/ready');
    expect(status).toBe(503);
    expect(JSON.parse(text)).toEqual({
      status: 'not_ready',
      checks: { state_store: 'ok', fleet: `${'x'.repeat(200)}…(truncated)` },
    });
  });

  it('count what they answered', async () => {
    await send('GET', '/things/1');
    const { text } = await send('GET', '/metrics');
    expect(text).toMatch(/orchestrator_http_requests_total\{route="\/things\/:id",method="GET",code="200"\} \d+/);
    expect(text).toContain('orchestrator_http_requests_in_flight');
  });
});

describe('what is not HTTP', () => {
  const raw = (text: string) =>
    new Promise<string>((resolve, reject) => {
      const { hostname, port } = new URL(url);
      let answer = '';
      const socket = connect(Number(port), hostname, () => socket.write(text));
      socket.on('data', (bytes) => {
        answer += bytes;
      });
      socket.on('close', () => resolve(answer));
      socket.on('error', reject);
    });

  it('is refused in the same envelope', async () => {
    expect(await raw('nonsense\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 .*"code":"invalid_argument"/s);
    const long = `GET / HTTP/1.1\r\nHost: x\r\nX-Long: ${'x'.repeat(70_000)}\r\n\r\n`;
    expect(await raw(long)).toMatch(/^HTTP\/1\.1 431 .*"code":"payload_too_large"/s);
  });
});

describe('bodies', () => {
  const ok = JSON.stringify({ name: 'n' });

  it('are JSON whatever their type says', async () => {
    for (const type of [
      'application/json',
      'text/plain',
      'application/x-www-form-urlencoded',
      'nonsense',
      'multipart/form-data; boundary=x',
    ])
      expect(await send('POST', '/things', ok, { 'content-type': type })).toMatchObject({ status: 200 });
    const untyped = await rawPost(ok);
    expect(untyped).toMatch(/^HTTP\/1.1 200 /);
  });

  const rawPost = (body: string, extra = '') =>
    new Promise<string>((resolve, reject) => {
      const { hostname, port } = new URL(url);
      let text = '';
      const socket = connect(Number(port), hostname);
      socket.on('data', (bytes) => {
        text += bytes;
      });
      socket.on('close', () => resolve(text));
      socket.on('error', reject);
      socket.end(
        `POST /things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TOKEN}\r\nConnection: close\r\n${extra}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      );
    });

  it('lose unknown fields and keep known ones', async () => {
    expect(JSON.parse((await send('POST', '/things', JSON.stringify({ name: 'n', new: 1 }))).text)).toEqual({
      name: 'n',
    });
  });

  it('that are missing or no JSON say what to send', async () => {
    for (const body of ['', 'null', '{'])
      expect(JSON.parse((await send('POST', '/things', body)).text)).toMatchObject({
        error: { hint: 'Send one JSON object in UTF-8.' },
      });
  });

  it('that are malformed are 400 with the reason and the field', async () => {
    const refusals: [string | Uint8Array<ArrayBuffer> | undefined, string | undefined, RegExp][] = [
      [undefined, undefined, /^invalid JSON body: a JSON object is required/],
      ['', undefined, /^invalid JSON body: a JSON object is required/],
      ['{', undefined, /^invalid JSON body: /],
      ['nonsense', undefined, /^invalid JSON body: /],
      [Buffer.from([0x7b, 0xff, 0x7d]), undefined, /^invalid JSON body: /],
      ['[]', '(body)', /object/],
      ['"text"', '(body)', /object/],
      ['null', undefined, /^invalid JSON body: a JSON object/],
      ['{}', 'name', /^name: /],
      ['{"name":5}', 'name', /^name: .*string/],
      ['{"name":""}', 'name', /^name: /],
      ['{"name":"n","size":2.5}', 'size', /^size: .*int/],
      ['{"name":"n","size":"2"}', 'size', /^size: .*number/],
      ['{"name":"n","size":1e400}', 'size', /^size: /],
      ['{"name":"n","list":["a",1]}', 'list.1', /^list\.1: .*string/],
      ['{"name":"n","nested":{"labels":{"A":"x"}}}', 'nested.labels.A', /must be small letters/],
      ['{"name":"n","nested":{"labels":{"a":1}}}', 'nested.labels.a', /string/],
      ['{"name":"n","nested":[]}', 'nested', /object/],
      ['{"name":"half \\ud800 pair"}', 'name', /surrogate/],
    ];
    for (const [body, field, message] of refusals) {
      const { status, text } = await send('POST', '/things', body);
      expect(status, String(body)).toBe(400);
      const { error } = JSON.parse(text);
      expect(error.code).toBe('invalid_argument');
      expect(error.message, String(body)).toMatch(message);
      expect(error.details?.field, String(body)).toBe(field);
    }
  });

  it.each(['/things', '/uploads'])('of %s that do not come are 408, and no error of ours', async (path) => {
    lines.length = 0;
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    socket.write(`POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TOKEN}\r\nContent-Length: 9\r\n\r\n{`);
    const answer = await text(socket);
    expect(answer).toMatch(/^HTTP\/1\.1 408 [\s\S]*connection: close[\s\S]*"code":"invalid_argument"/i);
    expect(lines.join('')).not.toContain('request failed');
  });

  it('over the limit are 413, declared or chunked, and the client gets to read that', async () => {
    const message = 'request body exceeds the 65536 byte limit for this endpoint';
    const body = JSON.stringify({ name: 'x'.repeat(5_000_000) });
    const declared = await send('POST', '/things', body);
    expect(declared.status).toBe(413);
    expect(JSON.parse(declared.text).error).toMatchObject({ code: 'payload_too_large', message });
    const chunked = await new Promise<string>((resolve, reject) => {
      const request = httpRequest(`${url}/things`, { method: 'POST', headers: auth }, (response) => {
        let text = '';
        response.on('data', (bytes) => {
          text += bytes;
        });
        response.on('end', () => resolve(text));
      });
      request.on('error', reject);
      request.end(body);
    });
    expect(JSON.parse(chunked).error).toMatchObject({ code: 'payload_too_large', message });
  });
});

describe('errors', () => {
  it('that we did not foresee are logged with their cause and shown as "internal error" with the request id', async () => {
    lines.length = 0;
    const { status, text, response } = await send('GET', '/broken');
    expect(status).toBe(500);
    expect(JSON.parse(text).error).toEqual({
      code: 'internal',
      message: 'internal error',
      details: { request_id: response.headers.get('x-request-id') },
    });
    expect(text).not.toContain('hunter2');
    expect(lines.join()).toContain('hunter2');
  });

  it('carry hint and Retry-After', async () => {
    const { status, text, response } = await send('GET', '/full');
    expect(status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('5');
    expect(JSON.parse(text).error).toEqual({ code: 'unavailable', message: 'no room', hint: 'Wait.' });
  });
});

describe('event streams', () => {
  it('send one data line a frame, comments in between, and notice that the client left', async () => {
    const leaving = new AbortController();
    const response = await fetch(`${url}/stream`, { headers: auth, signal: leaving.signal });
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
      server: 'fuse-orchestrator/1.2.3',
      'x-request-id': expect.stringMatching(/^req_/),
    });
    let text = '';
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk as Uint8Array, { stream: true });
      if (text.includes(': keepalive\n\n')) break;
    }
    expect(text).toMatch(/^id: a\ndata: \{"line":"one\\ntwo"\}\n\n(: keepalive\n\n)+$/);
    leaving.abort();
    await expect.poll(() => sse?.aborted).toBe(true);
  });

  it('hold little for a client that does not read', async () => {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    socket.write(`GET /flood HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`);
    socket.pause();
    await new Promise((resolve) => setTimeout(resolve, 300));
    const buffered = [...connections].map((server) => server.writableLength);
    expect(Math.max(...buffered)).toBeLessThan(1_000_000);
    socket.destroy();
    await expect.poll(() => sse?.aborted).toBe(true);
  });
});

const connections = new Set<import('node:net').Socket>();
beforeAll(() => {
  app.server.on('connection', (socket) => {
    connections.add(socket);
    socket.on('close', () => connections.delete(socket));
  });
});
