/** A client's mistake is a 4xx with a code, the field and a message; never a 500, and nothing is started. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

const ok = { shell: 'true' };
const badRuns: [string, unknown, string][] = [
  ['no command', {}, 'cmd'],
  ['two commands', { shell: 'true', cmd: ['true'] }, 'cmd'],
  ['an empty command', { cmd: [] }, 'cmd'],
  ['an empty program name', { cmd: [''] }, 'cmd'],
  ['NUL in an argument', { cmd: ['a', 'b\0'] }, 'cmd'],
  ['a command that is no list', { cmd: 'ls' }, 'cmd'],
  ['code without language', { code: 'x' }, 'language'],
  ['an unknown language', { code: 'x', language: 'cobol' }, 'language'],
  ['language without code', { shell: 'x', language: 'python' }, 'language'],
  ['negative cpus', { ...ok, limits: { cpus: -1 } }, 'limits.cpus'],
  ['no memory', { ...ok, limits: { ram_mb: 0 } }, 'limits.ram_mb'],
  ['half a gigabyte', { ...ok, limits: { storage_gb: 0.5 } }, 'limits.storage_gb'],
  ['a negative time limit', { ...ok, limits: { timeout_ms: -5 } }, 'limits.timeout_ms'],
  ['a number as text', { ...ok, limits: { cpus: '2' } }, 'limits.cpus'],
  ['a bad variable name', { ...ok, env: { 'A-B': '1' } }, 'env'],
  ['a variable that is no text', { ...ok, env: { A: 1 } }, 'env.A'],
  ['bad base64', { ...ok, files: [{ path: 'a', content_base64: '***' }] }, 'files'],
  ['a file without content', { ...ok, files: [{ path: 'a' }] }, 'files'],
  [
    'a file twice',
    {
      ...ok,
      files: [
        { path: 'a', content: '1' },
        { path: '/workspace/a', content: '2' },
      ],
    },
    'files',
  ],
  ['an unknown upload', { ...ok, files: [{ path: 'a', file_id: 'file-nope' }] }, 'files'],
  ['a bad mode', { ...ok, files: [{ path: 'a', content: '', mode: '9' }] }, 'files'],
  ['a glob that leaves', { ...ok, outputs: ['../x'] }, 'outputs'],
  ['an empty glob', { ...ok, outputs: [''] }, 'outputs'],
  ['a label with a space', { ...ok, labels: { 'a b': 'c' } }, 'labels'],
  ['an unknown image', { ...ok, image: 'windows' }, 'image'],
  ['two kinds of stdin', { ...ok, stdin: 'a', stdin_base64: 'YQ==' }, 'stdin'],
  ['a relative cwd', { ...ok, cwd: 'x' }, 'cwd'],
  ['a negative queue time', { ...ok, queue_timeout_ms: -1 }, 'queue_timeout_ms'],
];

describe('POST /v1/runs', () => {
  it.each(badRuns)('refuses %s', async (_, body, field) => {
    const answer = await stack.post('/v1/runs', body);
    expect(answer).toMatchObject({ status: 400, body: { error: { code: 'invalid_argument' } } });
    expect(answer.body.error.details.field).toMatch(new RegExp(`^${field.replace('.', '\\.')}`));
    expect(answer.body.error.message).toContain(field.split('.').at(-1));
  });

  it.each([
    ['no JSON', 'not json'],
    ['cut JSON', '{"shell": "tr'],
    ['a list', '[]'],
    ['null', 'null'],
    ['a number', '7'],
    ['nothing', ''],
    ['invalid UTF-8 escapes', '{"shell": "\\ud800"'],
  ])('refuses %s', async (_, body) => {
    expect(await stack.post('/v1/runs', body)).toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_argument' } },
    });
  });

  it('ignores what it does not know, takes null as absent', async () => {
    expect(await stack.post('/v1/runs', { ...ok, limits: null, env: null, future_field: 1, wait: true })).toMatchObject(
      { status: 200, body: { state: 'succeeded' } },
    );
  }, 60_000);

  it('refuses a body over the limit with 413', async () => {
    expect(await stack.post('/v1/runs', { shell: 'x'.repeat(34 * 1024 * 1024) })).toMatchObject({
      status: 413,
      body: { error: { code: 'payload_too_large' } },
    });
  });
});

describe('environments', () => {
  it.each([
    ['no task', {}, 400],
    ['an empty task', { task_id: '' }, 400],
    ['negative cpus', { task_id: 'x', spec: { cpus: -1 } }, 400],
    ['a fraction', { task_id: 'x', spec: { ram_mb: 2.5 } }, 400],
    ['a short idle timeout', { task_id: 'x', spec: { idle_timeout_seconds: 59 } }, 400],
    ['a bad label', { task_id: 'x', spec: { labels: { 'a b': 'c' } } }, 400],
    ['an unknown host', { task_id: 'x', spec: { host_id: 'nope' } }, 404],
    ['an unknown image', { task_id: 'x', spec: { image: 'nope' } }, 400],
    ['a card', { task_id: 'x', spec: { gpus: 1 } }, 503],
    ['what no host has', { task_id: 'x', spec: { ram_mb: 4_000_000 } }, 503],
    ['a manifest that is none', { task_id: 'x', secrets: { A: 'b' }, manifest_inline: '%%' }, 400],
    [
      'a startup that outlasts the wait',
      { task_id: 'x', startup_script: 'true', startup_script_timeout_seconds: 56 },
      400,
    ],
    ['a file of ours', { task_id: 'x', files: { '/fuse/x': '' } }, 400],
    ['too many bytes', { task_id: 'x', files: { '/a': 'A'.repeat(720_000) } }, 413],
    ['two healthchecks', { task_id: 'x', healthcheck: { http: { port: 1 }, exec: ['true'] } }, 400],
  ])('are refused with %s', async (_, body, status) => {
    expect((await stack.post('/v1/environments', body)).status).toBe(status);
    expect(await stack.client.environments.list()).toEqual([]);
  });

  it.each([
    ['both', { cmd: ['a'], shell: 'b' }, 400],
    ['neither', {}, 400],
    ['an empty list', { cmd: [] }, 400],
    ['a negative timeout', { shell: 'a', timeout_ms: -1 }, 400],
    ['no such environment', { shell: 'a' }, 404],
  ])('exec is refused with %s', async (_, body, status) => {
    expect((await stack.post('/v1/environments/fuse-none?action=exec', body)).status).toBe(status);
  });

  it('check the action before the environment', async () => {
    expect(await stack.post('/v1/environments/fuse-none?action=dance', {})).toMatchObject({
      status: 400,
      body: { error: { message: expect.stringContaining('missing or unknown action') } },
    });
    expect((await stack.post('/v1/environments/fuse-none', {})).status).toBe(400);
  });
});

describe('every route', () => {
  it.each([
    ['GET', '/v1/nope', 404, 'route_not_found'],
    ['GET', '/v1/runs/run-nope', 404, 'not_found'],
    ['GET', '/v1/runs/run-nope/events', 404, 'not_found'],
    ['GET', '/v1/runs/run-nope/outputs', 404, 'not_found'],
    ['POST', '/v1/runs/run-nope?action=cancel', 404, 'not_found'],
    ['GET', '/v1/environments/nope', 404, 'not_found'],
    ['DELETE', '/v1/environments/nope', 404, 'not_found'],
    ['GET', '/v1/environments?cursor=%25%25', 400, 'invalid_argument'],
    ['GET', '/v1/runs?cursor=zzz', 400, 'invalid_argument'],
  ])('%s %s is %i %s', async (method, path, status, code) => {
    const response = await stack.request(path, { method });
    expect(response.status).toBe(status);
    expect(response.headers.get('x-request-id')).toMatch(/^req_[0-9a-f]{32}$/);
    expect(response.headers.get('server')).toMatch(/^fuse-orchestrator\//);
    expect(await response.json()).toMatchObject({ error: { code } });
  });

  it('treats a bad limit as the default and echoes a good request id', async () => {
    const response = await stack.request('/v1/environments?limit=-3', { headers: { 'X-Request-ID': 'mine-1' } });
    expect(response.status).toBe(200);
    expect(response.headers.get('x-request-id')).toBe('mine-1');
    expect(await response.json()).toEqual({ environments: [] });
  });
});
