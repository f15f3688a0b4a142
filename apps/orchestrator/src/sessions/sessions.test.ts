import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { engines, quiet } from '../db/test-database.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

describe.each(engines)('sessions on %s', (engine) => {
  let scene: TestOrchestrator;
  beforeAll(async () => {
    scene = await startTestOrchestrator(engine);
  }, 60_000);
  afterAll(() => scene?.[Symbol.asyncDispose]());

  const send = (method: string, path: string, headers: Record<string, string>, body?: string) =>
    fetch(`${scene.orchestrator.url}${path}`, { method, headers, ...(body === undefined ? {} : { body }) });
  const login = async () => {
    const response = await send('POST', '/login', {}, JSON.stringify({ token: TEST_TOKEN }));
    expect(response.status).toBe(204);
    expect(await response.text()).toBe('');
    const set = response.headers.get('set-cookie') ?? '';
    expect(set).toMatch(/^fuse_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax$/);
    expect(set).not.toContain(TEST_TOKEN);
    return set.split(';')[0] ?? '';
  };
  const own = () => new URL(scene.orchestrator.url).origin;

  it('open what the master token opens, streams too, and end with the logout', async () => {
    const cookie = await login();
    await scene.call('POST', '/v1/environments', { task_id: 'seen' });
    expect((await send('GET', '/v1/environments', { cookie })).status).toBe(200);
    expect((await send('GET', '/v1/tenants', { cookie: `theme=dark; ${cookie}; a=b` })).status).toBe(200);
    const stream = await send('GET', '/v1/environments/fuse-seen/events', { cookie });
    expect(stream.status).toBe(200);
    await stream.body?.cancel();
    expect((await send('DELETE', '/v1/environments/fuse-seen', { cookie, origin: own() })).status).toBe(204);
    const logout = await send('POST', '/logout', { cookie });
    expect(logout.status).toBe(204);
    expect(logout.headers.get('set-cookie')).toMatch(/^fuse_session=; Path=\/; Max-Age=0; HttpOnly; SameSite=Lax$/);
    expect((await send('GET', '/v1/environments', { cookie })).status).toBe(401);
    expect((await send('POST', '/logout', { cookie })).status).toBe(204);
    expect((await send('POST', '/logout', {})).status).toBe(204);
  });

  it('are for the master token alone', async () => {
    const { key } = (await scene.call('POST', '/v1/api-keys', { scopes: ['admin'] })).body;
    for (const token of ['wrong', '', key]) {
      const response = await send('POST', '/login', {}, JSON.stringify({ token }));
      expect(response.status).toBe(401);
      expect(await response.json()).toMatchObject({ error: { code: 'unauthorized', message: 'invalid token' } });
      expect(response.headers.get('set-cookie')).toBeNull();
    }
    for (const body of ['', '{', '{}', '{"token":1}'])
      expect((await send('POST', '/login', {}, body)).status).toBe(400);
    const tooLong = await send('POST', '/login', {}, JSON.stringify({ token: 'x'.repeat(4_096) }));
    expect(tooLong.status).toBe(413);
    expect(await tooLong.text()).toContain('4096 byte limit');
  });

  it('count for nothing beside an Authorization header, malformed or wrong as it may be', async () => {
    const cookie = await login();
    for (const authorization of ['bearer x', 'Basic x', 'Bearer wrong', ''])
      expect((await send('GET', '/v1/environments', { cookie, authorization })).status).toBe(401);
    expect((await send('GET', '/v1/environments', { cookie: 'fuse_session=forged' })).status).toBe(401);
    expect((await send('GET', '/v1/environments', { cookie: `fuse_session=${TEST_TOKEN}` })).status).toBe(401);
  });

  it('change nothing for pages of another site', async () => {
    const cookie = await login();
    for (const headers of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { origin: 'http://127.0.0.1:1' },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
    ])
      for (const [method, path] of [
        ['POST', '/v1/tenants'],
        ['PATCH', '/v1/tenants/default'],
        ['DELETE', '/v1/environments/fuse-none'],
        ['POST', '/logout'],
      ] as const) {
        const response = await send(method, path, { cookie, ...headers }, method === 'DELETE' ? undefined : '{}');
        expect([path, response.status, await response.json()]).toMatchObject([
          path,
          403,
          { error: { code: 'forbidden' } },
        ]);
      }
    expect((await send('GET', '/v1/environments', { cookie, origin: 'https://evil.example' })).status).toBe(200);
    const token = { authorization: `Bearer ${TEST_TOKEN}`, origin: 'https://dashboard.example' };
    expect((await send('DELETE', '/v1/environments/fuse-none', token)).status).toBe(404);
  });

  it('are not in the database as the cookie has them, end with the master token, and are swept when they are over', async () => {
    if (engine === 'pglite') return; // its one connection is the orchestrator's
    const cookie = await login();
    await using db = await openDatabase(scene.location, quiet);
    const rows = await db.query.selectFrom('sessions').selectAll().execute();
    const hashes = rows.map(({ hash }) => Buffer.from(hash).toString('base64url'));
    expect(hashes.join()).not.toContain(cookie.slice('fuse_session='.length));
    const renamed = await scene.another({ masterToken: 'another-master-token' });
    expect((await fetch(`${renamed.url}/v1/environments`, { headers: { cookie } })).status).toBe(401);
  });
});

describe('sessions of orchestrators that are configured otherwise', () => {
  let scene: TestOrchestrator;
  beforeAll(async () => {
    scene = await startTestOrchestrator('postgres');
  }, 60_000);
  afterAll(() => scene?.[Symbol.asyncDispose]());

  it.each([
    ['for TLS by configuration', { secureCookies: true }, true],
    ['for the TLS of a proxy', { publicUrl: 'https://fuse.example.com' }, true],
    ['for no TLS, whatever the proxy has', { secureCookies: false, publicUrl: 'https://fuse.example.com' }, false],
  ])('have cookies %s', async (_, config, isSecure) => {
    const { url } = await scene.another(config);
    const login = await fetch(`${url}/login`, { method: 'POST', body: JSON.stringify({ token: TEST_TOKEN }) });
    const set = login.headers.get('set-cookie') ?? '';
    expect(set.endsWith('; Secure')).toBe(isSecure);
    const headers = { cookie: set.split(';')[0] ?? '', origin: 'https://fuse.example.com' };
    const change = await fetch(`${url}/v1/environments/none`, { method: 'DELETE', headers });
    expect(change.status).toBe('publicUrl' in config ? 404 : 403);
  });

  it('are none without a master token over PostgreSQL, where nobody is the master and keys open what they open', async () => {
    const { key } = (await scene.call('POST', '/v1/api-keys', { scopes: ['admin'] })).body;
    const { url } = await scene.another({ masterToken: undefined });
    const status = async (path: string, authorization?: string) =>
      (await fetch(`${url}${path}`, authorization === undefined ? {} : { headers: { authorization } })).status;
    expect(await status('/v1/environments')).toBe(401);
    expect(await status('/v1/environments', `Bearer ${TEST_TOKEN}`)).toBe(401);
    expect(await status('/v1/environments', `Bearer ${key}`)).toBe(200);
    expect(await status('/v1/tenants', `Bearer ${key}`)).toBe(403);
    const login = await fetch(`${url}/login`, { method: 'POST', body: JSON.stringify({ token: '' }) });
    expect([login.status, login.headers.get('set-cookie')]).toEqual([204, null]);
  });
});

it('without a master token everybody is the master over an embedded database, but for pages of other sites', async () => {
  await using scene = await startTestOrchestrator('pglite', { config: { masterToken: undefined } });
  const { url } = scene.orchestrator;
  const status = async (method: string, headers: Record<string, string>) =>
    (await fetch(`${url}/v1/tenants/none`, { method, headers })).status;
  expect(await status('GET', {})).toBe(404);
  expect(await status('DELETE', { authorization: 'Bearer whatever' })).toBe(404);
  expect(await status('DELETE', { origin: 'https://evil.example' })).toBe(403);
  const login = await fetch(`${url}/login`, { method: 'POST', body: '{' });
  expect([login.status, login.headers.get('set-cookie')]).toEqual([204, null]);
}, 60_000);
