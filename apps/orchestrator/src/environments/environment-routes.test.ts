/** What the routes of environments, hosts and images refuse, and how. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from '../hosts/test-host.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let test: TestOrchestrator;
let call: TestOrchestrator['call'];
beforeAll(async () => {
  test = await startTestOrchestrator('postgres');
  call = test.call;
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());

interface Refusal {
  body: unknown;
  status?: number;
  code?: string;
  field?: string | undefined;
  message?: RegExp;
}

const expectRefusal = async (
  method: string,
  path: string,
  { body, status = 400, code = 'invalid_argument', field, message }: Refusal,
) => {
  const what = `${method} ${path} ${JSON.stringify(body)}`;
  const answer = await call(method, path, body);
  expect(answer.status, what).toBe(status);
  expect(answer.body.error.code, what).toBe(code);
  expect(answer.body.error.details?.field, what).toBe(field);
  if (message !== undefined) expect(answer.body.error.message, what).toMatch(message);
};

describe('POST /v1/environments refuses', () => {
  const refused: Refusal[] = [
    { body: undefined, message: /^invalid JSON body/ },
    { body: 'nonsense', message: /^invalid JSON body/ },
    { body: [], field: '(body)' },
    { body: {}, field: 'task_id' },
    { body: { task_id: '' }, field: 'task_id', message: /task_id is required/ },
    { body: { task_id: 7 }, field: 'task_id' },
    { body: { task_id: 'x'.repeat(201) }, field: 'task_id' },
    { body: { task_id: 'a\0b' }, field: 'task_id', message: /NUL/ },
    { body: { task_id: 't', spec: 'x' }, field: 'spec' },
    { body: { task_id: 't', spec: { cpus: -1 } }, field: 'spec.cpus' },
    { body: { task_id: 't', spec: { cpus: 2.5 } }, field: 'spec.cpus' },
    { body: { task_id: 't', spec: { cpus: '2' } }, field: 'spec.cpus' },
    { body: { task_id: 't', spec: { cpus: 1e9 } }, field: 'spec.cpus' },
    { body: { task_id: 't', spec: { ram_mb: -5 } }, field: 'spec.ram_mb' },
    { body: { task_id: 't', spec: { storage_gb: null, ram_mb: [] } }, field: 'spec.ram_mb' },
    { body: { task_id: 't', spec: { gpus: -1 } }, field: 'spec.gpus' },
    { body: { task_id: 't', spec: { gpu_profile: 'big' } }, field: 'spec.gpu_profile' },
    { body: { task_id: 't', spec: { gpu_profile: '1g.10gb' } }, field: 'spec.gpu_profile' },
    { body: { task_id: 't', spec: { gpu_kind: 'a100' } }, field: 'spec.gpu_kind' },
    { body: { task_id: 't', spec: { gpus: 0, gpu_kind: 'a100', labels: { '-x': 'y' } } }, field: 'spec.gpu_kind' },
    { body: { task_id: 't', spec: { labels: { '-x': 'y' } } }, field: 'spec.labels.-x' },
    { body: { task_id: 't', spec: { labels: { x: 'a b' } } }, field: 'spec.labels.x' },
    { body: { task_id: 't', spec: { arch: 'mips' } }, field: 'spec.arch' },
    { body: { task_id: 't', spec: { max_runtime_seconds: -1 } }, field: 'spec.max_runtime_seconds' },
    { body: { task_id: 't', spec: { idle_timeout_seconds: 59 } }, field: 'spec.idle_timeout_seconds' },
    { body: { task_id: 't', spec: { idle_timeout_seconds: -1 } }, field: 'spec.idle_timeout_seconds' },
    { body: { task_id: 't', spec: { image: 'nope' } }, field: 'spec.image', message: /no image "nope"/ },
    { body: { task_id: 't', env: { 'NOT OK': 'x' } }, field: 'env.NOT OK' },
    { body: { task_id: 't', env: { X: 1 } }, field: 'env.X' },
    { body: { task_id: 't', env: { X: 'a\0' } }, field: 'env.X' },
    {
      body: { task_id: 't', spec: { host_id: 'x' } },
      status: 404,
      code: 'not_found',
      field: 'spec.host_id',
      message: /^spec\.host_id: host "x" is not registered$/,
    },
    { body: { task_id: 't', spec: { gpus: 1 } }, status: 503, code: 'unavailable', message: /serves gpus$/ },
    { body: { task_id: 't', spec: { ram_mb: 1 } }, field: 'spec.ram_mb', message: /at least 256$/ },
    { body: { task_id: 't', spec: { ram_mb: 255 } }, field: 'spec.ram_mb' },
    { body: { task_id: 't', spec: { cpus: 200 } }, status: 503, code: 'unavailable', message: /need 200CPU/ },
    { body: { task_id: 't', spec: { region: 'mars' } }, status: 503, code: 'unavailable' },
    {
      body: { task_id: 't', spec: { labels: { a: 'b' } } },
      status: 503,
      code: 'unavailable',
      message: /a=b matched none of 1/,
    },
    {
      body: { task_id: 't', spec: { max_runtime_seconds: Number.MAX_SAFE_INTEGER } },
      field: 'spec.max_runtime_seconds',
    },
    { body: { task_id: 't', spec: { idle_timeout_seconds: 1e15 } }, field: 'spec.idle_timeout_seconds' },
    {
      body: { task_id: 't', spec: { gpus: 1, gpu_profile: '1g.10gb', gpu_kind: 'NVIDIA L40S' } },
      field: 'spec.gpu_profile',
    },
    { body: { task_id: 't', labels: { a: '/' } }, field: 'labels.a' },
    { body: { task_id: 't', desktop: { width: 100, height: 768 } }, field: 'desktop.width' },
    { body: { task_id: 't', desktop: { width: 1_024 } }, field: 'desktop.height' },
    { body: { task_id: 't', gateway_url: 7 }, field: 'gateway_url' },
    { body: { task_id: 't', manifest_inline: 'x' }, field: 'manifest_inline' },
    { body: { task_id: 't', secrets: { a: 1 } }, field: 'secrets.a' },
  ];
  it.each(refused)('%j', (refusal) => expectRefusal('POST', '/v1/environments', refusal));

  it('and names the images that exist', async () => {
    const { body } = await call('POST', '/v1/environments', { task_id: 't', spec: { image: 'nope' } });
    expect(body.error.hint).toBe('Images that exist: base.');
  });

  it('nothing for the empty values that clients send', async () => {
    const empty = {
      secrets: {},
      files: null,
      expose: [],
      startup_script: '',
      startup_script_timeout_seconds: 0,
      healthcheck: null,
      wait: null,
      manifest_inline: null,
      spec: null,
      env: null,
    };
    const answer = await call('POST', '/v1/environments', { task_id: 'empty', new_field: { x: 1 }, ...empty });
    expect(answer.status).toBe(201);
    await call('DELETE', '/v1/environments/fuse-empty');
  });
});

describe('POST /v1/environments/{id}?action= refuses', () => {
  beforeAll(async () => {
    await call('POST', '/v1/environments', { task_id: 'here' });
  });
  const exec = '/v1/environments/fuse-here?action=exec';

  it.each([
    { body: undefined, message: /^invalid JSON body/ },
    { body: '{"cmd":["a"}', message: /^invalid JSON body/ },
    { body: [], field: '(body)' },
    { body: {}, field: 'cmd', message: /^one of cmd or shell is required$/ },
    { body: { cmd: [] }, field: 'cmd', message: /^one of cmd or shell is required$/ },
    { body: { shell: '' }, field: 'cmd', message: /^one of cmd or shell is required$/ },
    { body: { cmd: ['a'], shell: 'b' }, field: 'cmd', message: /^cmd and shell are mutually exclusive$/ },
    { body: { cmd: 'ls' }, field: 'cmd' },
    { body: { cmd: [1] }, field: 'cmd.0' },
    { body: { cmd: [''] }, field: 'cmd.0' },
    { body: { cmd: ['a', 'b\0'] }, field: 'cmd.1' },
    { body: { shell: 'a\0' }, field: 'shell' },
    { body: { cmd: ['a'], timeout_ms: -1 }, field: 'timeout_ms' },
    { body: { cmd: ['a'], timeout_ms: 1.5 }, field: 'timeout_ms' },
    { body: { cmd: ['a'], env: { '1': 'x' } }, field: 'env.1' },
    { body: { cmd: ['a'], cwd: 'relative' }, field: 'cwd' },
    { body: { cmd: ['a'], cwd: '/a/../b' }, field: 'cwd' },
    { body: { cmd: ['a'], user: '../root' }, field: 'user' },
    { body: { cmd: ['a'], encoding: 'latin1' }, field: 'encoding' },
  ] as Refusal[])('%j', (refusal) => expectRefusal('POST', exec, refusal));

  it('an unknown action before anything else', async () => {
    for (const action of ['', '?action=', '?action=explode', '?action=toString', '?action=exec&action=fork'])
      await expectRefusal('POST', `/v1/environments/none${action}`, {
        body: undefined,
        field: 'action',
        message: /^missing or unknown action/,
      });
    for (const action of ['exec', 'drain', 'fork', 'pause', 'resume', 'rotate-token'])
      await expectRefusal('POST', `/v1/environments/none?action=${action}`, {
        body: { cmd: ['a'] },
        status: 404,
        code: 'not_found',
        message: /^vm none not found$/,
      });
  });

  it('a body over 1 MiB', async () => {
    await expectRefusal('POST', exec, {
      body: { shell: 'x'.repeat(1_100_000) },
      status: 413,
      code: 'payload_too_large',
    });
  });
});

describe('hosts', () => {
  it('are registered with what they report, listed, cordoned, and removed when they are empty', async () => {
    await using second = await TestHost.start({ capacity: { cpus: 4 } });
    const registered = await call('POST', '/v1/hosts', {
      id: 'host-2',
      url: second.url,
      token: second.token,
      labels: { disk: 'nvme' },
      region: 'eu',
    });
    expect(registered).toMatchObject({
      status: 201,
      body: {
        id: 'host-2',
        state: 'active',
        region: 'eu',
        backend: 'qemu',
        labels: { disk: 'nvme' },
        capacity: { cpus: 4, ram_mb: 16_384, storage_gb: 100, vm_count: 100, arch: 'amd64' },
        allocated: { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 },
      },
    });
    expect(JSON.stringify(registered.body)).not.toContain(second.token);
    const page = await call('GET', '/v1/hosts?limit=1');
    expect(page.body).toMatchObject({ hosts: [{ id: 'host-1' }], next_cursor: expect.any(String) });
    expect((await call('GET', `/v1/hosts?cursor=${page.body.next_cursor}`)).body).toMatchObject({
      hosts: [{ id: 'host-2' }],
    });

    const pinned = {
      task_id: 'pinned',
      spec: { host_id: 'host-2', labels: { disk: 'nvme' }, region: 'eu', arch: 'x86_64' },
    };
    expect(await call('POST', '/v1/hosts/host-2?action=cordon')).toMatchObject({ status: 204, body: '' });
    await expectRefusal('POST', '/v1/environments', {
      body: pinned,
      status: 503,
      code: 'unavailable',
      message: /^pinned host cannot take this environment: host "host-2" is cordoned, not active$/,
    });
    expect(await call('POST', '/v1/hosts/host-2?action=uncordon')).toMatchObject({ status: 204 });
    expect(await call('POST', '/v1/environments', pinned)).toMatchObject({
      status: 201,
      body: { host_id: 'host-2', spec: { host_id: 'host-2' } },
    });
    await expectRefusal('DELETE', '/v1/hosts/host-2', { body: undefined, status: 409, code: 'conflict' });
    await call('DELETE', '/v1/environments/fuse-pinned');
    expect(await call('DELETE', '/v1/hosts/host-2')).toMatchObject({ status: 204, body: '' });
    await expectRefusal('GET', '/v1/hosts/host-2', {
      body: undefined,
      status: 404,
      code: 'not_found',
      message: /^host host-2 not found$/,
    });
  });

  it('keep their age and a cordon when their own process comes back, and lose both when registered anew', async () => {
    const { body: before } = await call('GET', '/v1/hosts/host-1');
    await call('POST', '/v1/hosts/host-1?action=cordon');
    await test.orchestrator.registerHost({ id: 'host-1', url: test.host.url, token: test.host.token });
    expect((await call('GET', '/v1/hosts/host-1')).body).toMatchObject({
      state: 'cordoned',
      created_at: before.created_at,
    });
    const anew = await call('POST', '/v1/hosts', {
      id: 'host-1',
      url: test.host.url,
      token: test.host.token,
      capacity: { cpus: 64 },
    });
    expect(anew.body).toMatchObject({
      state: 'active',
      capacity: { cpus: 64 },
      warnings: ['declared cpus (64) exceeds probed host capacity (8)'],
    });
    expect(anew.body.created_at).not.toBe(before.created_at);
    await test.orchestrator.registerHost({ id: 'host-1', url: test.host.url, token: test.host.token });
  });

  it.each([
    { body: {}, field: 'id' },
    { body: { id: 'x', url: '' }, field: 'url' },
    { body: { id: 'x', url: 'not a url' }, field: 'url' },
    { body: { id: 'x', url: 'ftp://h' }, field: 'url' },
    { body: { id: 'x', url: 'http://user:pw@h' }, field: 'url' },
    { body: { id: 'x', url: 'http://h/?q=1' }, field: 'url' },
    { body: { id: 'x', url: 'http://h/#f' }, field: 'url' },
    { body: { id: 'x', url: 'http://h', backend: 'xen' }, field: 'backend' },
    { body: { id: 'x', url: 'http://h', labels: { '': 'y' } }, field: 'labels.' },
    { body: { id: 'x', url: 'http://h', capacity: { cpus: -1 } }, field: 'capacity.cpus' },
    { body: { id: 'x', url: 'http://h', capacity: { arch: 'mips' } }, field: 'capacity.arch' },
  ] as Refusal[])('are refused as %j', (refusal) => expectRefusal('POST', '/v1/hosts', refusal));

  it('are refused when they cannot be asked and did not say everything, taken with a warning when they did', async () => {
    const url = 'http://127.0.0.1:1';
    await expectRefusal('POST', '/v1/hosts', {
      body: { id: 'x', url },
      status: 502,
      code: 'internal',
      message: /^could not verify host agent at/,
    });
    await expectRefusal('POST', '/v1/hosts', {
      body: { id: 'x', url: test.host.url, token: 'wrong' },
      status: 502,
      code: 'unauthorized',
    });
    const capacity = { cpus: 1, ram_mb: 512, storage_gb: 1, vm_count: 1 };
    const taken = await call('POST', '/v1/hosts', { id: 'x', url, capacity });
    expect(taken).toMatchObject({
      status: 201,
      body: { warnings: [expect.stringContaining('registering with declared capacity')] },
    });
    expect((await call('DELETE', '/v1/hosts/x')).status).toBe(204);
  });
});

describe('images', () => {
  it('are the union over hosts', async () => {
    await using second = await TestHost.start({
      images: [
        { name: 'base', digest: 'sha256:other', size_bytes: 2 },
        { name: 'extra', digest: 'sha256:1', size_bytes: 3, description: 'more' },
      ],
    });
    await call('POST', '/v1/hosts', { id: 'host-2', url: second.url, token: second.token });
    expect((await call('GET', '/v1/images')).body).toEqual({
      images: [
        { name: 'base', digest: 'sha256:0', size_bytes: 1 },
        { name: 'extra', digest: 'sha256:1', size_bytes: 3, description: 'more' },
      ],
    });
    const placed = await call('POST', '/v1/environments', { task_id: 'extra', spec: { image: 'extra' } });
    expect(placed.body).toMatchObject({ host_id: 'host-2' });
    await call('DELETE', '/v1/environments/fuse-extra');
    await call('DELETE', '/v1/hosts/host-2');
  });

  it('that were added a moment ago are found', async () => {
    test.host.images = [...test.host.images, { name: 'new', digest: 'sha256:2', size_bytes: 1 }];
    expect(await call('POST', '/v1/environments', { task_id: 'new', spec: { image: 'new' } })).toMatchObject({
      status: 201,
    });
    await call('DELETE', '/v1/environments/fuse-new');
  });
});

describe('events', () => {
  const follow = async function* (path: string, headers: Record<string, string> = {}) {
    const response = await fetch(`${test.orchestrator.url}${path}`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}`, ...headers },
    });
    expect(response.status).toBe(200);
    let text = '';
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk as Uint8Array).toString();
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const frame = text.slice(0, end);
        text = text.slice(end + 2);
        const [, id, data] = /^id: ([0-9a-f]{32})\ndata: (.*)$/.exec(frame) ?? [];
        if (id !== undefined && data !== undefined) yield { id, ...JSON.parse(data) };
      }
    }
  };

  it('begin with the current state, tell each transition, and end with the environment', async () => {
    const { body: made } = await call('POST', '/v1/environments', { task_id: 'told' });
    const seen: { id: string; state: string; vm_id: string; updated_at: string }[] = [];
    for await (const event of follow('/v1/environments/fuse-told/events')) {
      seen.push(event);
      if (seen.length === 1) void call('DELETE', '/v1/environments/fuse-told');
    }
    expect(seen.map(({ state }) => state)).toEqual(['running', 'destroying', 'destroyed']);
    expect(seen[0]).toMatchObject({ event: 'state', vm_id: made.id, updated_at: made.updated_at });

    // A client that lost the stream after the first event gets the rest, though the environment is gone.
    const rest = [];
    for await (const event of follow('/v1/environments/fuse-told/events', { 'last-event-id': seen[0]?.id ?? '' }))
      rest.push(event);
    expect(rest).toEqual(seen.slice(1));
    const query = [];
    for await (const event of follow(`/v1/environments/fuse-told/events?last_event_id=${seen[1]?.id}`))
      query.push(event);
    expect(query).toEqual(seen.slice(2));
    await expectRefusal('GET', '/v1/environments/fuse-told/events', {
      body: undefined,
      status: 404,
      code: 'not_found',
    });
  });

  it('of one that failed tell its end again, and its 404 says it', async () => {
    const { body: made } = await call('POST', '/v1/environments', {
      task_id: 'doomed',
      wait: false,
      startup_script: 'exit 3',
    });
    const states = [];
    for await (const { state } of follow(`/v1/environments/${made.id}/events`)) states.push(state);
    expect(states.at(-1)).toBe('failed');
    const again = [];
    for await (const event of follow(`/v1/environments/${made.id}/events`)) again.push(event);
    expect(again).toEqual([expect.objectContaining({ state: 'failed', error: expect.any(String) })]);
    const { status, body } = await call('GET', `/v1/environments/${made.id}`);
    expect([status, body.error]).toEqual([
      404,
      {
        code: 'not_found',
        message: `vm ${made.id} not found`,
        details: { state: 'failed', error: again[0]?.error, ended_at: expect.any(String) },
        hint: expect.stringContaining(`/v1/environments/${made.id}/events`),
      },
    ]);
    expect((await call('GET', '/v1/environments?state=failed')).body).toEqual({ environments: [] });
    const { body: other } = await call('GET', '/v1/environments/fuse-told');
    expect(other.error.details).toEqual({ state: 'destroyed', ended_at: expect.any(String) });
    await call('POST', '/v1/tenants', { id: 'stranger' });
    const stranger = await call('GET', `/v1/environments/${made.id}`, undefined, {
      headers: { 'fuse-tenant': 'stranger' },
    });
    expect([stranger.status, stranger.body.error.details]).toEqual([404, undefined]);
  });

  it('of another environment are not a way in', async () => {
    await call('POST', '/v1/environments', { task_id: 'one' });
    const first = (await follow('/v1/environments/fuse-one/events').next()).value;
    const answer = await call('GET', '/v1/environments/fuse-two/events', undefined, {
      headers: { 'last-event-id': first.id },
    });
    expect(answer.status).toBe(404);
    await call('DELETE', '/v1/environments/fuse-one');
  });
});

describe('a list of all tenants', () => {
  it('is for the master, in pages, and says whose each is', async () => {
    const inTenant = (tenant: string) => ({ headers: { 'fuse-tenant': tenant } });
    const labels = { of: 'lists' };
    for (const id of ['blue', 'green']) {
      await call('POST', '/v1/tenants', { id });
      for (const task_id of ['same', 'other'])
        expect((await call('POST', '/v1/environments', { task_id, labels }, inTenant(id))).status).toBe(201);
    }
    await call('POST', '/v1/environments', { task_id: 'same', labels });
    const seen: { id: string; tenant_id: string }[] = [];
    const query = 'all_tenants=true&host_id=host-1&label=of=lists&limit=2';
    let cursor = '';
    do {
      const { body } = await call('GET', `/v1/environments?${query}&cursor=${cursor}`);
      seen.push(...body.environments);
      cursor = body.next_cursor ?? '';
    } while (cursor !== '');
    expect(seen.map(({ id, tenant_id }) => `${tenant_id}/${id}`)).toEqual([
      'blue/fuse-other',
      'blue/fuse-same',
      'default/fuse-same',
      'green/fuse-other',
      'green/fuse-same',
    ]);
    const { body: own } = await call('GET', '/v1/environments?all_tenants=false&label=of=lists');
    expect(own.environments).toEqual([expect.not.objectContaining({ tenant_id: expect.anything() })]);
    const { body: key } = await call('POST', '/v1/api-keys', { tenant_id: 'blue', scopes: ['admin'] });
    const refused = await call('GET', '/v1/environments?all_tenants=true', undefined, {
      headers: { authorization: `Bearer ${key.key}` },
    });
    expect([refused.status, refused.body.error.code]).toEqual([403, 'unauthorized']);
    await expectRefusal('GET', '/v1/environments?all_tenants=perhaps', { body: undefined, field: 'all_tenants' });
    for (const { id, tenant_id } of seen)
      await call('DELETE', `/v1/environments/${id}`, undefined, inTenant(tenant_id));
  });
});

it('a body of any shape is never our own failure', async () => {
  const values = [null, 0, -1, 1e308, '', 'x', '\u0000', [], {}, true, [[]], { a: null }, 'x'.repeat(10_000)];
  const fields = [
    'task_id',
    'spec',
    'env',
    'files',
    'secrets',
    'cmd',
    'shell',
    'timeout_ms',
    'cwd',
    'user',
    'id',
    'url',
    'token',
    'labels',
    'capacity',
  ];
  for (const path of ['/v1/environments', '/v1/environments/none?action=exec', '/v1/hosts'])
    for (const field of fields)
      for (const value of values) {
        const answer = await call('POST', path, {
          task_id: 'fuzz',
          cmd: ['true'],
          id: 'fuzz',
          url: 'http://127.0.0.1:1',
          [field]: value,
        });
        expect(
          answer.status,
          `${path} ${field} ${JSON.stringify(value)?.slice(0, 50)} ${JSON.stringify(answer.body)}`,
        ).not.toBe(500);
        if (answer.status === 201 && path === '/v1/environments')
          await call('DELETE', `/v1/environments/${answer.body.id}`);
      }
}, 60_000);
