/** Calls of operators: what is sent, and what becomes of the answers. */
import type { AuditEntry, FleetEvent } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { FuseClient, type FuseClientOptions } from './client.ts';
import { CutStreamError, FuseError, isConflict } from './errors.ts';
import { AT, environment } from './test-answers.ts';
import { TestServer } from './test-server.ts';

const clientOf = (server: TestServer, options: Partial<FuseClientOptions> = {}) =>
  new FuseClient({ baseUrl: server.url, random: () => 0, ...options });

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => Promise.reject(new Error('it did not fail')),
    (error: unknown) => error,
  );

const key = { id: 'ak_1', created_at: AT, tenant_id: 'acme', key: 'fuse_sk_1' };
const tenant = { id: 'acme', quotas: {}, disabled: false, created_at: AT, updated_at: AT };
const capacity = { cpus: 1, ram_mb: 1, storage_gb: 1, vm_count: 1 };
const host = {
  id: 'h 1',
  url: 'http://h',
  state: 'active',
  capacity,
  allocated: capacity,
  last_seen: AT,
  created_at: AT,
  updated_at: AT,
};
const entry: AuditEntry = {
  id: '7',
  at: AT,
  actor_kind: 'master',
  method: 'POST',
  route: 'POST /v1/tenants',
  status: 201,
  request_id: 'req_1',
};
const usage = {
  tenant_id: 'acme',
  used: {
    environments: 1,
    cpus: 1,
    ram_mb: 1,
    storage_gb: 1,
    creates_per_minute: 0,
    snapshot_bytes: 0,
    output_bytes: 0,
  },
  quotas: { environments: 2 },
  at: AT,
};
const consumed = { vcpu_seconds: 1.5, gib_seconds: 0.5, stored_byte_seconds: 0, egress_bytes: 3 };
const history = { tenant_id: 'acme', from: AT, to: AT, hours: [{ hour: AT, ...consumed }], total: consumed };
const placement = { host_id: 'h', at: AT, hosts: [{ host_id: 'h', score: 3 }] };
const network = {
  policy: { egress: 'none', allow: [], deny: [] },
  ...{ sent_bytes: 0, received_bytes: 0, allowed_count: 0, refused_count: 0 },
  connections: [],
};
const token = { token: 'fuse_join_1', expires_at: AT, uses: 1 };
const expires = { expires_in_seconds: 60 };

type Client = FuseClient;
const cases: [string, (client: Client) => Promise<unknown>, string, unknown, number, unknown, unknown?][] = [
  // what is called, the call, request line, its body, status and body of the answer, and what the call gives where that is something else
  ['apiKeys.create()', (c) => c.apiKeys.create(), 'POST /v1/api-keys', {}, 201, key],
  ['apiKeys.create(label)', (c) => c.apiKeys.create('ci'), 'POST /v1/api-keys', { label: 'ci' }, 201, key],
  [
    'apiKeys.create({…})',
    (c) => c.apiKeys.create({ scopes: ['runs'], tenant_id: 'acme', ...expires }),
    'POST /v1/api-keys',
    { scopes: ['runs'], tenant_id: 'acme', ...expires },
    201,
    key,
  ],
  ['apiKeys.list', (c) => c.apiKeys.list(), 'GET /v1/api-keys', undefined, 200, { api_keys: null }, []],
  ['apiKeys.revoke', (c) => c.apiKeys.revoke('a/k'), 'DELETE /v1/api-keys/a%2Fk', undefined, 204, undefined],
  ['tenants.create', (c) => c.tenants.create({ id: 'acme' }), 'POST /v1/tenants', { id: 'acme' }, 201, tenant],
  ['tenants.get', (c) => c.tenants.get('acme'), 'GET /v1/tenants/acme', undefined, 200, tenant],
  [
    'tenants.list',
    (c) => c.tenants.list(),
    'GET /v1/tenants?limit=200',
    undefined,
    200,
    { tenants: [tenant], next_cursor: '' },
    [tenant],
  ],
  [
    'tenants.update',
    (c) => c.tenants.update('acme', { label: null, quotas: { cpus: 3, ram_mb: null } }),
    'PATCH /v1/tenants/acme',
    { label: null, quotas: { cpus: 3, ram_mb: null } },
    200,
    tenant,
  ],
  ['tenants.delete', (c) => c.tenants.delete('acme'), 'DELETE /v1/tenants/acme', undefined, 204, undefined],
  ['usage.now', (c) => c.usage.now(), 'GET /v1/usage', undefined, 200, usage],
  [
    'usage.history',
    (c) => c.usage.history({ from: new Date(AT), to: '2026-01-02T00:00:00Z' }),
    'GET /v1/usage/history?from=2026-01-01T00%3A00%3A00.000Z&to=2026-01-02T00%3A00%3A00Z',
    undefined,
    200,
    history,
  ],
  [
    'audit.list',
    (c) => c.audit.list({ actor: 'ak_1', target: 'x', route: 'POST /v1/runs', status: 403 }),
    'GET /v1/audit?actor=ak_1&target=x&route=POST+%2Fv1%2Fruns&status=403&limit=200',
    undefined,
    200,
    { entries: [entry] },
    [entry],
  ],
  ['hosts.list', (c) => c.hosts.list(), 'GET /v1/hosts?limit=200', undefined, 200, {}, []],
  ['hosts.drain', (c) => c.hosts.drain('h 1'), 'POST /v1/hosts/h%201?action=drain', undefined, 204, undefined],
  ['hosts.probe', (c) => c.hosts.probe('h'), 'POST /v1/hosts/h?action=probe', undefined, 200, host],
  ['hosts.markLost', (c) => c.hosts.markLost('h'), 'POST /v1/hosts/h?action=lost', undefined, 204, undefined],
  [
    'hosts.markLost, forced',
    (c) => c.hosts.markLost('h', { force: true }),
    'POST /v1/hosts/h?action=lost&force=true',
    undefined,
    204,
    undefined,
  ],
  [
    'hosts.createJoinToken',
    (c) => c.hosts.createJoinToken({ uses: 1, region: 'eu' }),
    'POST /v1/host-join-tokens',
    { uses: 1, region: 'eu' },
    201,
    token,
  ],
  [
    'environments.listPage',
    (c) => c.environments.listPage({ labels: { a: 'b', c: 'd' }, limit: 3 }),
    'GET /v1/environments?label=a%3Db&label=c%3Dd&limit=3',
    undefined,
    200,
    { environments: null, next_cursor: null },
    { environments: [], nextCursor: undefined },
  ],
  [
    'environments.update',
    (c) => c.environments.update('e', { ...expires, labels: {} }),
    'PATCH /v1/environments/e',
    { ...expires, labels: {} },
    200,
    environment('e'),
  ],
  [
    'environments.drain',
    (c) => c.environments.drain('e'),
    'POST /v1/environments/e?action=drain',
    undefined,
    200,
    environment('e', 'draining'),
  ],
  [
    'environments.drain, of a server that answers 204',
    (c) => c.environments.drain('e'),
    'POST /v1/environments/e?action=drain',
    undefined,
    204,
    undefined,
  ],
  [
    'environments.fork, of a server that answers 204',
    (c) => c.environments.fork('e'),
    'POST /v1/environments/e?action=fork',
    {},
    204,
    undefined,
  ],
  [
    'environments.rotateToken',
    (c) => c.environments.rotateToken('e'),
    'POST /v1/environments/e?action=rotate-token',
    undefined,
    204,
    undefined,
  ],
  [
    'environments.placement',
    (c) => c.environments.placement('e'),
    'GET /v1/environments/e/placement',
    undefined,
    200,
    placement,
  ],
  [
    'environments.network',
    (c) => c.environments.network('e'),
    'GET /v1/environments/e/network',
    undefined,
    200,
    network,
  ],
  [
    'environments.update',
    (c) => c.environments.update('e', { network: { egress: 'allowlist', allow: ['pypi.org'] } }),
    'PATCH /v1/environments/e',
    { network: { egress: 'allowlist', allow: ['pypi.org'] } },
    200,
    environment('e'),
  ],
  [
    'environments.computer',
    (c) => c.environments.computer('e', { action: 'left_click', coordinate: [1, 2] }),
    'POST /v1/environments/e/computer',
    { action: 'left_click', coordinate: [1, 2] },
    200,
    { output: 'ok' },
  ],
  [
    'environments.computerDisplay',
    (c) => c.environments.computerDisplay('e'),
    'GET /v1/environments/e/computer',
    undefined,
    200,
    { up: false, width: 0, height: 0, error: 'none' },
  ],
];

describe('operators', () => {
  it.each(cases)('%s', async (_, call, line, sent, status, body, expected = body) => {
    await using server = await TestServer.start();
    server.script.refusals = [{ status, body }];
    expect(await call(clientOf(server))).toEqual(expected);
    const [seen, ...more] = server.seen;
    expect([`${seen?.method} ${seen?.path}`, more]).toEqual([line, []]);
    expect(seen?.body === '' ? undefined : JSON.parse(seen?.body ?? '')).toEqual(sent);
    // Some frameworks refuse a content type without a content.
    expect(seen?.headers['content-type']).toBe(sent === undefined ? undefined : 'application/json');
  });

  it('act in a tenant', async () => {
    await using server = await TestServer.start();
    server.script.refusals = [{ status: 200, body: usage }];
    await clientOf(server, { token: 'master', tenant: 'acme' }).usage.now();
    expect(server.seen[0]?.headers).toMatchObject({ 'fuse-tenant': 'acme', authorization: 'Bearer master' });
  });

  it('hear that a key was shown before', async () => {
    await using server = await TestServer.start();
    const { key: _, ...known } = key;
    server.script.refusals = [{ status: 201, body: known }];
    const failure = await failureOf(clientOf(server).apiKeys.create('ci', { idempotencyKey: 'one' }));
    expect(failure).toBeInstanceOf(FuseError);
    expect(failure).toMatchObject({ message: expect.stringContaining('ak_1') });
    expect(server.seen[0]?.headers['idempotency-key']).toBe('one');
  });
});

describe('what a model’s tool gets', () => {
  const resultOf = async (status: number, body: unknown) => {
    await using server = await TestServer.start();
    server.script.refusals = [{ status, body }];
    return await clientOf(server).environments.computerToolResult('e', { action: 'screenshot' });
  };
  const refusal = (code: string) => ({ error: { code, message: 'the display is not up' } });

  it('is text and image, or that it is done', async () => {
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } };
    expect(await resultOf(200, { output: 'X=1', screenshot: 'AAAA' })).toEqual({
      content: [{ type: 'text', text: 'X=1' }, image],
    });
    expect(await resultOf(200, { screenshot: 'AAAA' })).toEqual({ content: [image] });
    expect(await resultOf(200, { output: '' })).toEqual({ content: [{ type: 'text', text: 'done' }] });
  });

  it('is an error that it can act on, and no other', async () => {
    for (const [status, code] of [
      [400, 'invalid_argument'],
      [409, 'conflict'],
      [503, 'unavailable'],
    ] as const)
      expect(await resultOf(status, refusal(code))).toEqual({
        is_error: true,
        content: [{ type: 'text', text: 'the display is not up' }],
      });
    expect(await failureOf(resultOf(404, refusal('not_found')))).toMatchObject({ status: 404 });
    expect(isConflict(await failureOf(resultOf(500, refusal('conflict'))))).toBe(true);
  });
});

describe('streams', () => {
  const event = (id: string): FleetEvent => ({
    id,
    event: 'state',
    vm_id: 'e',
    state: 'running',
    updated_at: AT,
    tenant_id: 'acme',
  });
  const frame = (id: string) => `id: ${id}\ndata: ${JSON.stringify(event(id))}\n\n`;
  const reset = `id: 9\ndata: ${JSON.stringify({ id: '9', event: 'reset', updated_at: AT })}\n\n`;
  const stream = (body: string) => ({ status: 200, headers: { 'content-type': 'text/event-stream' }, body });

  it('of all environments go on after the last event, and after the place that they were told before there was one', async () => {
    await using server = await TestServer.start();
    server.script.refusals = [
      stream('id: 0\n\n: keepalive\n\n'),
      stream(`${frame('1')}${frame('2')}id: 3\nda`),
      stream(reset),
      stream(frame('10').replaceAll('\n', '\r\n')),
    ];
    const seen: string[] = [];
    for await (const { id, event } of clientOf(server, { tenant: 'acme' }).events()) {
      seen.push(`${id} ${event}`);
      if (id === '10') break;
    }
    expect(seen).toEqual(['1 state', '2 state', '9 reset', '10 state']);
    const asked = server.seen.map(({ path, headers }) => [path, headers['last-event-id'], headers['fuse-tenant']]);
    expect(asked).toEqual([undefined, '0', '2', '9'].map((id) => ['/v1/events', id, 'acme']));
  });

  it('of the audit log come as they are exported, and say when they were cut', async () => {
    await using server = await TestServer.start();
    const lines = ['7', '8'].map((id) => `${JSON.stringify({ ...entry, id })}\n`).join('');
    server.script.refusals = [
      { status: 200, body: lines },
      { status: 200, headers: { 'content-length': '10000' }, body: lines },
      { status: 200, body: 'nonsense\n' },
    ];
    const exported = async (seen: string[] = []) => {
      for await (const { id } of clientOf(server).audit.export({ from: new Date(AT) })) seen.push(id);
      return seen;
    };
    expect(await exported()).toEqual(['7', '8']);
    expect(server.seen[0]?.path).toBe('/v1/audit?from=2026-01-01T00%3A00%3A00.000Z&format=ndjson');
    const seen: string[] = [];
    const cut = failureOf(exported(seen));
    await expect.poll(() => seen).toEqual(['7', '8']);
    server.dropConnections();
    expect(await cut).toBeInstanceOf(CutStreamError);
    expect(await cut).toMatchObject({ lastEventId: '8' });
    expect(await failureOf(exported())).toBeInstanceOf(FuseError);
  });
});
