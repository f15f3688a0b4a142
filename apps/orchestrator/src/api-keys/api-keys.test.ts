import { scopes } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { FrameClient } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { engines, quiet } from '../db/test-database.ts';
import { type Answer, startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

const bearer = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });

describe.each(engines)('API keys on %s', (engine) => {
  let scene: TestOrchestrator;
  beforeAll(async () => {
    scene = await startTestOrchestrator(engine);
    for (const id of ['acme', 'other']) await scene.call('POST', '/v1/tenants', { id });
  }, 60_000);
  afterAll(() => scene?.[Symbol.asyncDispose]());

  const mint = async (body?: object, init?: RequestInit): Promise<Answer['body']> => {
    const answer = await scene.call('POST', '/v1/api-keys', body, init);
    expect(answer.status).toBe(201);
    return answer.body;
  };
  const list = async (init?: RequestInit) => (await scene.call('GET', '/v1/api-keys', undefined, init)).body.api_keys;

  it('are shown once, listed newest first without the key, and say when they were used', async () => {
    const empty = await scene.call('POST', '/v1/api-keys');
    expect(empty.status).toBe(201);
    expect(empty.body).toEqual({
      id: expect.stringMatching(/^ak_[0-9a-f]{16}$/),
      key: expect.stringMatching(/^fuse_sk_[\w-]{43}$/),
      created_at: expect.any(String),
      tenant_id: 'default',
    });
    const key = await mint({ label: 'ci', scopes: ['runs', 'runs'], expires_in_seconds: 3_600, tenant_id: null });
    expect(key).toMatchObject({ label: 'ci', scopes: ['runs'] });
    const inSeconds = (Date.parse(key.expires_at) - Date.parse(key.created_at)) / 1_000;
    expect(inSeconds).toBe(3_600);
    expect((await scene.call('GET', '/v1/runs', undefined, bearer(key.key))).status).toBe(200);
    const keys = await list();
    expect(keys.map(({ id }: { id: string }) => id)).toEqual([key.id, empty.body.id]);
    expect(keys[0].last_used_at).toBeDefined();
    expect(keys[1].last_used_at).toBeUndefined();
    expect(JSON.stringify(keys)).not.toContain('fuse_sk_');
  });

  it('refuse what makes no sense, by field', async () => {
    for (const [body, field] of [
      [{ label: 1 }, 'label'],
      [{ label: 'x'.repeat(257) }, 'label'],
      [{ scopes: ['root'] }, 'scopes.0'],
      [{ scopes: 'runs' }, 'scopes'],
      [{ expires_in_seconds: 0 }, 'expires_in_seconds'],
      [{ expires_in_seconds: -5 }, 'expires_in_seconds'],
      [{ tenant_id: 'Not An Id' }, 'tenant_id'],
    ] as const) {
      const answer = await scene.call('POST', '/v1/api-keys', body);
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'invalid_argument', details: { field } } } });
    }
    expect(await scene.call('POST', '/v1/api-keys', { tenant_id: 'nobody' })).toMatchObject({
      status: 404,
      body: { error: { code: 'not_found' } },
    });
    expect(await scene.call('DELETE', '/v1/api-keys/ak_0000000000000000')).toMatchObject({
      status: 404,
      body: { error: { code: 'not_found', message: 'api key not found' } },
    });
  });

  it('made twice under one Idempotency-Key are one key, which is shown to one of them', async () => {
    const headers = { 'idempotency-key': 'mint-once' };
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => scene.call('POST', '/v1/api-keys', { label: 'once' }, { headers })),
    );
    expect(new Set(answers.map(({ status, body }) => `${status} ${body.id}`)).size).toBe(1);
    expect(answers.filter(({ body }) => body.key !== undefined)).toHaveLength(1);
    expect(answers.filter((answer) => answer.headers.get('idempotency-replayed') === 'true')).toHaveLength(19);
    expect((await scene.call('POST', '/v1/api-keys', { label: 'else' }, { headers })).status).toBe(409);
  });

  it('of scope admin administer their own tenant and nothing else', async () => {
    const admin = bearer((await mint({ scopes: ['admin'], tenant_id: 'acme' })).key);
    const foreign = await mint({ tenant_id: 'other' });
    const made = await mint({ scopes: ['exec'] }, admin);
    expect(made).toMatchObject({ tenant_id: 'acme', scopes: ['exec'] });
    expect(new Set((await list(admin)).map((key: { tenant_id: string }) => key.tenant_id))).toEqual(new Set(['acme']));
    const create = (body: object) => scene.call('POST', '/v1/api-keys', body, admin);
    expect(await create({})).toMatchObject({ status: 400, body: { error: { details: { field: 'scopes' } } } });
    expect((await create({ scopes: ['runs'], tenant_id: 'acme' })).status).toBe(201);
    for (const tenant_id of ['other', 'nobody'])
      expect(await create({ scopes: ['runs'], tenant_id })).toMatchObject({
        status: 403,
        body: { error: { code: 'unauthorized' } },
      });
    expect((await scene.call('DELETE', `/v1/api-keys/${foreign.id}`, undefined, admin)).status).toBe(404);
    for (const path of ['/v1/tenants', '/v1/tenants/acme'])
      expect((await scene.call('GET', path, undefined, admin)).status).toBe(403);
    expect((await scene.call('GET', '/v1/environments', undefined, admin)).status).toBe(200);
    // Its own end is answered.
    const own = await mint({ scopes: ['admin'], tenant_id: 'acme' });
    expect((await scene.call('DELETE', `/v1/api-keys/${own.id}`, undefined, bearer(own.key))).status).toBe(204);
    expect((await scene.call('GET', '/v1/api-keys', undefined, bearer(own.key))).status).toBe(401);
  });

  it('of the tenant that the master names are the only ones that it sees then', async () => {
    const inOther = { headers: { 'fuse-tenant': 'other' } };
    const acme = await mint({ tenant_id: 'acme' });
    const other = await mint({}, inOther);
    expect(other.tenant_id).toBe('other');
    expect(new Set((await list(inOther)).map((key: { tenant_id: string }) => key.tenant_id))).toEqual(
      new Set(['other']),
    );
    expect((await scene.call('DELETE', `/v1/api-keys/${acme.id}`, undefined, inOther)).status).toBe(404);
    expect((await scene.call('DELETE', `/v1/api-keys/${acme.id}`)).status).toBe(204);
    expect((await scene.call('DELETE', `/v1/api-keys/${acme.id}`)).status).toBe(204);
    const revoked = (await list()).find(({ id }: { id: string }) => id === acme.id);
    expect(revoked.revoked_at).toBeDefined();
  });

  it('act in their own tenant, whatever they say', async () => {
    const { key } = await mint({ tenant_id: 'acme', scopes: [...scopes] });
    const inTenant = (tenant: string) =>
      scene.call('GET', '/v1/environments', undefined, {
        headers: { ...bearer(key).headers, 'fuse-tenant': tenant },
      });
    expect((await inTenant('acme')).status).toBe(200);
    for (const tenant of ['other', 'nobody'])
      expect(await inTenant(tenant)).toMatchObject({ status: 403, body: { error: { code: 'unauthorized' } } });
    expect(
      await scene.call('GET', '/v1/environments', undefined, { headers: { 'fuse-tenant': 'nobody' } }),
    ).toMatchObject({ status: 404, body: { error: { code: 'not_found', details: { field: 'Fuse-Tenant' } } } });
  });

  it('are nowhere in the database', async () => {
    if (engine === 'pglite') return; // its one connection is the orchestrator's
    const { key } = await mint({}, { headers: { 'idempotency-key': 'in-clear' } });
    await using db = await openDatabase(scene.location, quiet);
    const answers = await db.query.selectFrom('idempotency_keys').selectAll().execute();
    const rows = await db.query.selectFrom('api_keys').selectAll().execute();
    const readable = rows.map((row) => ({ ...row, hash: Buffer.from(row.hash).toString('latin1') }));
    expect(answers.length).toBeGreaterThan(0);
    expect(JSON.stringify([answers, readable])).not.toContain(key.slice('fuse_sk_'.length));
  });
});

it('credentials of every kind are in no log line and in no entry of the audit log, right or wrong', async () => {
  const lines: string[] = [];
  const log = createLogger({ name: 'test', level: 'trace', destination: { write: (line) => void lines.push(line) } });
  const config = { logLevel: 'trace' };
  await using scene = await startTestOrchestrator('postgres', { config, deps: { log } });
  const { url } = scene.orchestrator;
  const { key } = (await scene.call('POST', '/v1/api-keys', { scopes: ['exec', 'environments:read'] })).body;
  await scene.call('POST', '/v1/environments', { task_id: 'one' });
  const token = (await scene.call('GET', '/v1/environments/fuse-one/files?path=/fuse/auth-token')).body;
  const login = await scene.call('POST', '/login', { token: TEST_TOKEN });
  const cookie = login.headers.get('set-cookie')?.split(';')[0] ?? '';
  const ticket = await scene.call('POST', '/v1/environments/fuse-one/tickets', { for: 'attach' }, bearer(key));
  const wrong = ['fuse_sk_wrong-key-of-somebody', 'fuse_env_wrong-token', 'wrong-master-token'];
  for (const given of [key, token, ...wrong])
    await scene.call('DELETE', '/v1/environments/none', undefined, bearer(given));
  for (const given of wrong) await scene.call('POST', '/login', { token: given });
  await fetch(`${url}/v1/tenants`, { method: 'POST', headers: { cookie }, body: '{' });
  const attach = `/v1/environments/fuse-one/attach?tty=1&cmd=true&ticket=${ticket.body.ticket}`;
  const client = await FrameClient.webSocket({ url }, attach);
  await client.ended;
  await expect(FrameClient.webSocket({ url }, attach)).rejects.toThrow('401');
  await expect.poll(() => lines.filter((line) => line.includes('"connection"')).length).toBe(2);
  const audit = JSON.stringify((await scene.call('GET', '/v1/audit?limit=200')).body);
  expect(audit).toContain('POST /v1/api-keys');
  const secrets = [key, token, TEST_TOKEN, cookie.slice('fuse_session='.length), ticket.body.ticket, ...wrong];
  for (const secret of secrets) {
    expect(secret.length).toBeGreaterThan(10);
    expect(lines.join('')).not.toContain(secret);
    expect(audit).not.toContain(secret);
  }
}, 60_000);
