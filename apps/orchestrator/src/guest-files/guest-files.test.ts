/** Files of environments through the API: what is passed on, what is refused and how, and what is left when a client or a VM goes. */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { FILE_OPERATION_LIMIT_BYTES } from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inMs } from '../db/db.ts';
import { openDatabase } from '../db/open.ts';
import { quiet } from '../db/test-database.ts';
import { TOUCH_GRAIN_MS } from '../environments/ready.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let test: TestOrchestrator;
let call: TestOrchestrator['call'];
let id: string;
let root: string;

beforeAll(async () => {
  test = await startTestOrchestrator('postgres');
  call = test.call;
  ({ id, root } = await environment('files'));
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());

async function environment(task_id: string): Promise<{ id: string; vmId: string; root: string }> {
  const known = new Set(test.host.vms.keys());
  const created = await call('POST', '/v1/environments', { task_id });
  expect(created.status).toBe(201);
  const [vmId = '', vm] = [...test.host.vms].find(([each]) => !known.has(each)) ?? [];
  if (vm === undefined) throw new Error('the host has no VM of it');
  return { id: created.body.id, vmId, root: vm.root };
}

const at = (path: string, more = '', of = id) => `/v1/environments/${of}/files?path=${encodeURIComponent(path)}${more}`;
const tarAt = (path: string) => `/v1/environments/${id}/tar?path=${encodeURIComponent(path)}`;

async function fetchRaw(method: string, path: string, init: RequestInit = {}) {
  const headers = { authorization: `Bearer ${TEST_TOKEN}`, ...init.headers };
  const response = await fetch(`${test.orchestrator.url}${path}`, { method, ...init, headers });
  return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
}

const put = async (path: string, body: Uint8Array | string, more = '') =>
  fetchRaw('PUT', at(path, more), { body: typeof body === 'string' ? body : new Uint8Array(body) });
const errorIn = (bytes: Buffer) =>
  (JSON.parse(bytes.toString()) as { error: { code: string; message: string; hint?: string; details?: object } }).error;

describe('bytes', () => {
  it.each([0, 1, 4_096, 65_537, 3_000_000])('%i of them come back as they went', async (size) => {
    const bytes = randomBytes(size);
    const written = await put(`/data/${size}`, bytes);
    expect(written.status).toBe(201);
    expect(JSON.parse(written.bytes.toString())).toMatchObject({ path: `/data/${size}`, size_bytes: size });
    const got = await fetchRaw('GET', at(`/data/${size}`));
    expect(got.status).toBe(200);
    expect(got.bytes.equals(bytes)).toBe(true);
    expect(Object.fromEntries(got.headers)).toMatchObject({
      'content-length': String(size),
      'content-type': 'application/octet-stream',
      'fuse-file-mode': '0644',
      'fuse-file-uid': String(process.getuid?.()),
      'accept-ranges': 'bytes',
      'x-content-type-options': 'nosniff',
    });
    expect(Date.parse(got.headers.get('last-modified') ?? '')).not.toBeNaN();
  });

  it('have a head without a body', async () => {
    await put('/data/head', 'twelve bytes');
    const head = await fetchRaw('HEAD', at('/data/head'));
    expect(head.status).toBe(200);
    expect(head.bytes.length).toBe(0);
    expect(head.headers.get('content-length')).toBe('12');
    expect(head.headers.get('fuse-file-mode')).toBe('0644');
    expect((await fetchRaw('HEAD', at('/data/none'))).status).toBe(404);
  });

  it('keep the mode of the file that they replace, and take the one that is said', async () => {
    await put('/data/mode', 'x', '&mode=0600');
    await put('/data/mode', 'y');
    expect((await stat(join(root, 'data/mode'))).mode & 0o777).toBe(0o600);
  });

  it.each([
    ['bytes=0-3', 'bytes 0-3/10', '0123'],
    ['bytes=4-', 'bytes 4-9/10', '456789'],
    ['bytes=-2', 'bytes 8-9/10', '89'],
    ['bytes=8-100', 'bytes 8-9/10', '89'],
    ['bytes=-100', 'bytes 0-9/10', '0123456789'],
  ])('come in parts: %s', async (range, contentRange, expected) => {
    await put('/data/digits', '0123456789');
    const got = await fetchRaw('GET', at('/data/digits'), { headers: { range } });
    expect([got.status, got.headers.get('content-range'), got.bytes.toString()]).toEqual([206, contentRange, expected]);
    expect(got.headers.get('content-length')).toBe(String(expected.length));
  });

  it.each([
    ['bytes=10-', 416, 'bytes */10'],
    ['bytes=-0', 416, 'bytes */10'],
    ['bytes=0-1,3-4', 416, null],
    ['bytes=x', 200, null],
    ['lines=1-2', 200, null],
  ])('%s of 10 bytes is %i', async (range, status, contentRange) => {
    await put('/data/digits', '0123456789');
    const got = await fetchRaw('GET', at('/data/digits'), { headers: { range } });
    expect([got.status, got.headers.get('content-range')]).toEqual([status, contentRange]);
    if (status === 416)
      expect(errorIn(got.bytes)).toMatchObject({
        code: 'invalid_argument',
        details: { field: 'Range' },
        hint: expect.any(String),
      });
  });
});

describe('a request is refused', () => {
  it.each([
    ['GET', '/files', 'path'],
    ['GET', '/files?path=', 'path'],
    ['GET', '/files?path=relative', 'path'],
    ['GET', '/files?path=/a%00b', 'path'],
    ['GET', '/files?path=/%78'.padEnd(4_200, 'x'), 'path'],
    ['PUT', '/files?path=/f&mode=9', 'mode'],
    ['PUT', '/files?path=/f&uid=-1', 'uid'],
    ['PUT', '/files?path=/f&gid=4294967295', 'gid'],
    ['PUT', '/files?path=/f&user=A%20B', 'user'],
    ['PUT', '/files?path=/f&user=me&uid=1', 'uid'],
    ['PUT', '/files?path=/f&sha256=abc', 'sha256'],
    ['PUT', '/files?path=/f&exclusive=yes', 'exclusive'],
    ['GET', '/files/watch?path=x', 'path'],
    ['GET', '/files/watch?path=/&recursive=all', 'recursive'],
    ['GET', '/tar', 'path'],
    ['PUT', '/tar?path=x', 'path'],
    ['PUT', '/tar?path=/x&user=me&uid=1', 'uid'],
  ])('400: %s %.60s', async (method, path, field) => {
    const answer = await fetchRaw(method, `/v1/environments/${id}${path}`);
    expect(answer.status).toBe(400);
    expect(errorIn(answer.bytes)).toMatchObject({ code: 'invalid_argument', details: { field } });
  });

  it.each([
    ['stat', {}, 'path'],
    ['stat', { path: 'x' }, 'path'],
    ['stat', { path: '/x', follow: 'yes' }, 'follow'],
    ['list', { path: '/', limit: 0 }, 'limit'],
    ['list', { path: '/', limit: 10_001 }, 'limit'],
    ['list', { path: '/', max_depth: 129 }, 'max_depth'],
    ['mkdir', { path: '/x', mode: '0999' }, 'mode'],
    ['move', { from: '/x' }, 'to'],
    ['chown', { path: '/x', uid: 1.5 }, 'uid'],
    ['glob', { patterns: [] }, 'patterns'],
    ['search', { path: '/', pattern: '' }, 'pattern'],
    ['search', { path: '/', pattern: 'x', context: 21 }, 'context'],
    ['edit', { path: '/x', edits: [] }, 'edits'],
    ['edit', { path: '/x', edits: [{ old_text: '', new_text: '' }] }, 'edits.0.old_text'],
    ['edit', { path: '/x', edits: [{ old_text: 'a', new_text: 'b' }], expect_sha256: 'x' }, 'expect_sha256'],
    ['patch', { cwd: '/', patch: '' }, 'patch'],
    ['patch', { cwd: '/', patch: 'x', strip: 17 }, 'strip'],
  ])('400: %s %j', async (name, body, field) => {
    const answer = await call('POST', `/v1/environments/${id}/files/${name}`, body);
    expect(answer.status).toBe(400);
    expect(answer.body.error).toMatchObject({ code: 'invalid_argument', details: { field } });
  });

  it('400 without a body, 413 over the limit, 404 of an operation that is none', async () => {
    const path = `/v1/environments/${id}/files/stat`;
    expect((await call('POST', path)).status).toBe(400);
    const long = await call('POST', path, { path: '/x', more: 'x'.repeat(FILE_OPERATION_LIMIT_BYTES) });
    expect([long.status, long.body.error.code]).toEqual([413, 'payload_too_large']);
    const none = await call('POST', `/v1/environments/${id}/files/explode`, {});
    expect(none.status).toBe(404);
    expect(none.body.error).toMatchObject({ code: 'route_not_found', hint: expect.stringContaining('stat, list') });
  });

  it('401 without a token', async () => {
    expect((await fetchRaw('GET', at('/data/x'), { headers: { authorization: 'Bearer wrong' } })).status).toBe(401);
  });

  it.each([
    ['GET', () => at('/none', '', 'fuse-nobody')],
    ['PUT', () => at('/none', '', 'fuse-nobody')],
    ['GET', () => at('/none/at/all')],
    ['GET', () => tarAt('/none')],
  ])('404: %s of what is not there', async (method, path) => {
    const answer = await fetchRaw(method, path(), method === 'PUT' ? { body: 'x' } : {});
    expect(answer.status).toBe(404);
    expect(errorIn(answer.bytes).code).toBe('not_found');
  });

  it('409 with the reason and what to do', async () => {
    await mkdir(join(root, 'full/inner'), { recursive: true });
    await writeFile(join(root, 'there'), 'once');
    const operation = async (name: string, body: unknown) =>
      (await call('POST', `/v1/environments/${id}/files/${name}`, body)).body.error;
    const conflict = (reason: string, path: string) => ({
      code: 'conflict',
      details: { reason, path },
      hint: expect.any(String),
    });
    expect(errorIn((await fetchRaw('GET', at('/full'))).bytes)).toMatchObject(conflict('not_a_regular_file', '/full'));
    expect(errorIn((await put('/full', 'x')).bytes)).toMatchObject(conflict('is_a_directory', '/full'));
    expect(errorIn((await put('/there', 'x', '&exclusive=1')).bytes)).toMatchObject(conflict('exists', '/there'));
    expect(errorIn((await put('/there/x', 'x')).bytes)).toMatchObject(conflict('not_a_directory', '/there/x'));
    expect(await operation('remove', { path: '/full' })).toMatchObject(conflict('not_empty', '/full'));
    expect(await operation('move', { from: '/full', to: '/there' })).toMatchObject(conflict('exists', '/there'));
    const edit = (old_text: string) => ({ path: '/there', edits: [{ old_text, new_text: 'y' }] });
    expect(await operation('edit', edit('never'))).toMatchObject(conflict('no_match', '/there'));
    expect(await operation('stat', { path: '/not/there' })).toMatchObject({
      code: 'not_found',
      hint: expect.any(String),
    });
  });

  it('400 when the sum is another one: nothing is written', async () => {
    const answer = await put('/data/sum', 'x', `&sha256=${'0'.repeat(64)}`);
    expect([answer.status, errorIn(answer.bytes).details]).toEqual([400, { field: 'sha256' }]);
    await expect(stat(join(root, 'data/sum'))).rejects.toThrow();
  });

  it('409 while it is paused, with the way on; resumed by its use when that may be', async () => {
    const paused = await environment('paused');
    await call('POST', `/v1/environments/${paused.id}?action=pause`);
    const answer = await fetchRaw('PUT', at('/x', '', paused.id), { body: randomBytes(1_000_000) });
    expect(answer.status).toBe(409);
    expect(errorIn(answer.bytes)).toMatchObject({
      details: { state: 'paused' },
      hint: expect.stringContaining('resume'),
    });
    const created = await call('POST', '/v1/environments', { task_id: 'auto', auto_resume: true });
    const auto = created.body.id;
    await call('POST', `/v1/environments/${auto}?action=pause`);
    expect((await fetchRaw('PUT', at('/x', '', auto), { body: 'x' })).status).toBe(201);
    await call('DELETE', `/v1/environments/${auto}`);
    await call('DELETE', `/v1/environments/${paused.id}`);
  });
});

describe('operations', () => {
  it('are passed on, and their answers', async () => {
    const operation = async (name: string, body: unknown) => {
      const answer = await call('POST', `/v1/environments/${id}/files/${name}`, body);
      expect(answer.status, JSON.stringify(answer.body)).toBe(200);
      return answer.body;
    };
    await operation('mkdir', { path: '/ops/a/b', parents: true });
    await put('/ops/a/f', 'one two');
    await operation('symlink', { path: '/ops/link', target: 'a/f' });
    expect(await operation('stat', { path: '/ops/link' })).toMatchObject({ type: 'symlink', target: 'a/f' });
    expect(await operation('stat', { path: '/ops/link', follow: true })).toMatchObject({ type: 'file', size_bytes: 7 });
    await operation('edit', { path: '/ops/a/f', edits: [{ old_text: 'two', new_text: 'three' }] });
    expect(await readFile(join(root, 'ops/a/f'), 'utf8')).toBe('one three');
    await operation('copy', { from: '/ops/a', to: '/ops/c', recursive: true });
    await operation('move', { from: '/ops/c', to: '/ops/d' });
    await operation('chmod', { path: '/ops/d/f', mode: '0400' });
    const { entries, truncated } = await operation('list', { path: '/ops', recursive: true });
    expect(entries.map(({ path }: { path: string }) => path)).toEqual([
      '/ops/a',
      '/ops/a/b',
      '/ops/a/f',
      '/ops/d',
      '/ops/d/b',
      '/ops/d/f',
      '/ops/link',
    ]);
    expect(truncated).toBe(false);
    await operation('remove', { path: '/ops', recursive: true });
    expect(await operation('remove', { path: '/ops', missing_ok: true })).toEqual({ removed: 0 });
  });
});

describe('a tar', () => {
  it('goes in and comes out', async () => {
    await mkdir(join(root, 'tree/deep'), { recursive: true });
    await writeFile(join(root, 'tree/deep/file'), randomBytes(200_000));
    await symlink('deep/file', join(root, 'tree/link'));
    const tar = await fetchRaw('GET', tarAt('/tree'));
    expect([tar.status, tar.headers.get('content-type')]).toEqual([200, 'application/x-tar']);
    const extracted = await fetchRaw('PUT', tarAt('/copy'), { body: new Uint8Array(tar.bytes) });
    expect(extracted.status).toBe(200);
    const copied = await readFile(join(root, 'copy/deep/file'));
    expect(copied.equals(await readFile(join(root, 'tree/deep/file')))).toBe(true);
  });
});

describe('a watch', () => {
  it('tells what changes, line by line, and ends with its client', async () => {
    await mkdir(join(root, 'watched'));
    const stop = new AbortController();
    const path = `/v1/environments/${id}/files/watch?path=/watched&recursive=1`;
    const response = await fetch(`${test.orchestrator.url}${path}`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
      signal: stop.signal,
    });
    expect(response.headers.get('content-type')).toBe('application/x-ndjson');
    let text = '';
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk).toString();
      if (text === '{"type":"ready"}\n') await writeFile(join(root, 'watched/new'), 'x');
      if (text.includes('/watched/new')) break;
    }
    expect(text.split('\n')[1]).toContain('"path":"/watched/new"');
  });
});

describe('a transfer', () => {
  it('is a use of the environment, for as long as it lasts', async () => {
    await using db = await openDatabase(test.location, quiet);
    const idleMs = async () => {
      const row = await db.query
        .selectFrom('environments')
        .select('last_activity_at')
        .where('id', '=', id)
        .executeTakeFirstOrThrow();
      return Date.now() - row.last_activity_at.getTime();
    };
    const idleSince = (ms: number) =>
      db.query
        .updateTable('environments')
        .set({ last_activity_at: inMs(-ms) })
        .where('id', '=', id)
        .execute();
    await put('/data/used', 'x');
    await idleSince(3_600_000);
    await fetchRaw('GET', at('/data/used'));
    await expect.poll(idleMs).toBeLessThan(60_000);
    const stop = new AbortController();
    const watch = await fetch(`${test.orchestrator.url}/v1/environments/${id}/files/watch?path=/`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
      signal: stop.signal,
    });
    expect(watch.status).toBe(200);
    await new Promise((resolve) => setTimeout(resolve, TOUCH_GRAIN_MS + 100));
    await idleSince(3_600_000);
    stop.abort();
    await expect.poll(idleMs, { timeout: 10_000 }).toBeLessThan(60_000);
  });
});

describe('a client', () => {
  it('that goes away ends what its request began at the host', async () => {
    for (const [method, path] of [
      ['GET', `/v1/environments/${id}/files/watch?path=/`],
      ['POST', `/v1/environments/${id}/files/search`],
    ] as const) {
      let arrive: () => void = () => {};
      let end: () => void = () => {};
      const arrived = new Promise<void>((resolve) => {
        arrive = resolve;
      });
      const ended = new Promise<void>((resolve) => {
        end = resolve;
      });
      test.host.before = async (call, response) => {
        if (!/\/(watch|search)$/.test(call.path)) return;
        response.once('close', end);
        arrive();
        if (method === 'POST') await new Promise(() => {});
      };
      const stop = new AbortController();
      const body = method === 'POST' ? { body: JSON.stringify({ path: '/', pattern: 'x' }) } : {};
      const answer = fetchRaw(method, path, { ...body, signal: stop.signal });
      answer.catch(() => {});
      await arrived;
      stop.abort();
      await ended;
    }
    test.host.before = () => {};
  });

  it('that reads nothing holds no bytes here', async () => {
    await writeFile(join(root, 'huge'), '');
    await truncate(join(root, 'huge'), 400 * 1_048_576);
    let sent = () => 0;
    test.host.before = (call, response) => {
      if (call.path.endsWith('/file') && response instanceof http.ServerResponse)
        sent = () => response.socket?.bytesWritten ?? 0;
    };
    const { hostname, port } = new URL(test.orchestrator.url);
    const socket = connect(Number(port), hostname);
    socket.pause();
    socket.write(`GET ${at('/huge')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TEST_TOKEN}\r\n\r\n`);
    let before = -1;
    while (before !== sent() || before === 0) {
      before = sent();
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    expect(before).toBeLessThan(64 * 1_048_576); // the sockets' own buffers
    test.host.before = () => {};
    socket.destroy();
  });
});

describe('an end before the end', () => {
  it('of an upload leaves what was there', async () => {
    await put('/data/kept', 'as before');
    await new Promise<void>((resolve) => {
      const request = http.request(`${test.orchestrator.url}${at('/data/kept')}`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${TEST_TOKEN}` },
      });
      request.on('error', () => resolve());
      request.write(randomBytes(300_000), () => setTimeout(() => request.destroy(new Error('gone')), 50));
    });
    await expect.poll(() => stat(join(root, 'data/kept.partial')).catch(() => 'gone')).toBe('gone');
    expect(await readFile(join(root, 'data/kept'), 'utf8')).toBe('as before');
  });

  it('of a download that its VM does not survive is an error, never an end', async () => {
    const lost = await environment('lost');
    await writeFile(join(lost.root, 'large'), randomBytes(30_000_000));
    const response = await fetch(`${test.orchestrator.url}${at('/large', '', lost.id)}`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    const reader = response.body?.getReader();
    await reader?.read();
    test.host.killVm(lost.vmId);
    await test.host.stop();
    await expect(
      (async () => {
        while ((await reader?.read())?.done === false);
      })(),
    ).rejects.toThrow();
    await test.host.listen();
    await call('DELETE', `/v1/environments/${lost.id}`);
  });

  it('of a VM is told as its loss', async () => {
    const dead = await environment('dead');
    test.host.killVm(dead.vmId);
    const answer = await fetchRaw('GET', at('/x', '', dead.id));
    expect([answer.status, errorIn(answer.bytes).code]).toEqual([502, 'vm_lost']);
    expect(errorIn(answer.bytes).hint).toEqual(expect.any(String));
  });

  it('of what the host knew is the loss of the VM, not of a file', async () => {
    const forgotten = await environment('forgotten');
    const { root: orphan } = test.host.vms.get(forgotten.vmId) ?? { root: '/nowhere' };
    test.host.vms.delete(forgotten.vmId);
    const answer = await call('POST', `/v1/environments/${forgotten.id}/files/stat`, { path: '/x' });
    expect([answer.status, answer.body.error.code]).toEqual([502, 'vm_lost']);
    await rm(orphan, { recursive: true });
  });
});
