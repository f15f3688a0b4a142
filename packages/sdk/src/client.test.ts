import { describe, expect, it } from 'vitest';
import { FuseClient, type FuseClientOptions } from './client.ts';
import { FuseApiError, FuseError, FuseTimeoutError, isNotFound, isUnauthorized } from './errors.ts';
import { TestServer } from './test-server.ts';

const clientOf = (server: TestServer, options: Partial<FuseClientOptions> = {}) =>
  new FuseClient({ baseUrl: server.url, random: () => 0, ...options });

const failureOf = async (work: Promise<unknown>): Promise<unknown> => {
  try {
    await work;
  } catch (error) {
    return error;
  }
  throw new Error('it did not fail');
};

/** A port that nothing listens on. */
async function closedUrl(): Promise<string> {
  const server = await TestServer.start();
  const { url } = server;
  await server[Symbol.asyncDispose]();
  return url;
}

describe('requests', () => {
  it('carry token, user agent, request id and own headers', async () => {
    await using server = await TestServer.start();
    const client = clientOf(server, { token: 'secret', requestId: () => 'req-7', headers: { 'x-team': 'blue' } });
    await client.runs.create({ shell: 'true' });
    expect(server.seen[0]?.headers).toMatchObject({
      authorization: 'Bearer secret',
      'user-agent': expect.stringMatching(/^fuse-ts\//),
      'x-request-id': 'req-7',
      'x-team': 'blue',
      'content-type': 'application/json',
      'idempotency-key': expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
  });

  it('drop the path of the base URL and encode ids', async () => {
    await using server = await TestServer.start();
    const client = new FuseClient({ baseUrl: `${server.url}/prefix/`, retries: 0 });
    await failureOf(client.runs.get('a/b?c'));
    expect(server.seen[0]?.path).toBe('/v1/runs/a%2Fb%3Fc');
  });

  it('are refused by a base URL that is none', () => {
    for (const baseUrl of ['', 'localhost:8080', 'ftp://x'])
      expect(() => new FuseClient({ baseUrl })).toThrow(FuseError);
  });
});

describe('errors', () => {
  it('carry what the envelope says', async () => {
    await using server = await TestServer.start();
    server.script.refusals = [
      {
        status: 400,
        body: { error: { code: 'invalid_argument', message: 'no', hint: 'try', details: { field: 'cmd' } } },
      },
    ];
    const error = await failureOf(clientOf(server).runs.get('x'));
    expect(error).toBeInstanceOf(FuseApiError);
    expect(error).toMatchObject({
      status: 400,
      code: 'invalid_argument',
      reason: 'no',
      hint: 'try',
      details: { field: 'cmd' },
      requestId: 'req_1',
      message: 'fuse api error: status=400, code=invalid_argument, no, request_id=req_1',
    });
  });

  it('are told apart by code, not by status', async () => {
    await using server = await TestServer.start();
    server.script.refusals = [
      { status: 403, body: { error: { code: 'unauthorized', message: 'no' } } },
      { status: 404, body: { error: { code: 'route_not_found', message: 'no' } } },
    ];
    expect(isUnauthorized(await failureOf(clientOf(server).runs.get('x')))).toBe(true);
    expect(isNotFound(await failureOf(clientOf(server).runs.get('x')))).toBe(false);
  });

  it('without an envelope keep status and body', async () => {
    await using server = await TestServer.start();
    server.script.refusals = [{ status: 500, body: '<html>' }];
    const error = await failureOf(clientOf(server).runs.get('x'));
    expect(error).toMatchObject({ status: 500, code: '', body: '<html>' });
  });

  it('of a server that answers something else say so', async () => {
    await using server = await TestServer.start();
    server.script.refusals = [
      { status: 200, body: 'hello' },
      { status: 200, body: { id: 7 } },
    ];
    expect(String(await failureOf(clientOf(server).runs.get('x')))).toContain('not JSON');
    expect(String(await failureOf(clientOf(server).runs.get('x')))).toContain('not what the API promises');
  });
});

describe('retries', () => {
  it('send a read again after a lost answer and after 503, waiting as long as asked', async () => {
    await using server = await TestServer.start();
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    server.script.loseAnswers = { method: 'GET', times: 2 };
    expect((await client.runs.get(run.id)).id).toBe(run.id);
    server.script.refusals = [{ status: 503, headers: { 'Retry-After': '1' }, body: {} }];
    const startedAt = performance.now();
    await client.runs.get(run.id);
    expect(performance.now() - startedAt).toBeGreaterThan(990);
  });

  it('of a create name the same run, so that its command runs once', async () => {
    await using server = await TestServer.start({ loseAnswers: { method: 'POST', times: 2 } });
    const run = await clientOf(server).runs.create({ shell: 'true' });
    expect(server.seen.length).toBe(3);
    expect(new Set(server.seen.map((each) => each.headers['idempotency-key'])).size).toBe(1);
    expect([...server.runs.keys()]).toEqual([run.id]);
  });

  it('send an exec again that never left', async () => {
    await using server = await TestServer.start();
    const closed = new URL(await closedUrl());
    let calls = 0;
    const client = clientOf(server, {
      fetch: (url, init) => {
        if (++calls === 1) url.port = closed.port;
        return fetch(url, init);
      },
    });
    await client.environments.exec('e', { shell: 'true' });
    expect([calls, server.execs]).toEqual([2, 1]);
  });

  it('take "not found" of a repeated delete for done', async () => {
    await using server = await TestServer.start();
    const client = clientOf(server);
    const { id } = await client.runs.create({ shell: 'true' });
    server.script.loseAnswers = { method: 'DELETE', times: 1 };
    await client.environments.destroy(id);
    expect(isNotFound(await failureOf(client.environments.destroy(id)))).toBe(true);
  });

  it('are bounded', async () => {
    const client = new FuseClient({ baseUrl: await closedUrl(), random: () => 0 });
    const error = await failureOf(client.version());
    expect(error).toMatchObject({ name: 'FuseConnectionError', sent: false });
    expect(String(error)).toContain('cannot be reached');
  });
});

describe('time limits', () => {
  it('end a call that takes too long, and say so', async () => {
    await using server = await TestServer.start({ createDelayMs: 5_000 });
    const error = await failureOf(clientOf(server, { timeoutMs: 50 }).runs.create({ shell: 'true' }));
    expect(error).toBeInstanceOf(FuseTimeoutError);
    expect(server.seen.length).toBe(1);
  });

  it('never cut a create because of its startup script', async () => {
    await using server = await TestServer.start();
    const slowFetch = async (url: URL, init: RequestInit) => {
      await new Promise((resolve) => setTimeout(resolve, 200));
      init.signal?.throwIfAborted();
      return fetch(url, init);
    };
    const { environments } = clientOf(server, { timeoutMs: 50, fetch: slowFetch });
    await environments.create({ task_id: 'a', startup_script: 'sleep 50', startup_script_timeout_seconds: 55 });
    for (const quick of [{}, { startup_script: 'true', wait: false }])
      expect(await failureOf(environments.create({ task_id: 'a', ...quick }))).toBeInstanceOf(FuseTimeoutError);
  });

  it('leave the reason of an abort as it is', async () => {
    await using server = await TestServer.start({ createDelayMs: 5_000 });
    const reason = new Error('enough');
    const stop = new AbortController();
    setTimeout(() => stop.abort(reason), 50);
    const client = clientOf(server, { timeoutMs: 10_000 });
    expect(await failureOf(client.runs.create({ shell: 'true' }, { signal: stop.signal }))).toBe(reason);
    expect(await failureOf(client.version({ signal: AbortSignal.abort(reason) }))).toBe(reason);
  });
});

describe('exec', () => {
  it('wants exactly one of cmd and shell', async () => {
    await using server = await TestServer.start();
    for (const request of [{}, { cmd: ['a'], shell: 'b' }])
      expect(String(await failureOf(clientOf(server).environments.exec('e', request)))).toContain('exactly one');
    expect(server.seen).toEqual([]);
  });
});
