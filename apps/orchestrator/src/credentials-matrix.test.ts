/** Every route there is, from the live table, with every kind of credential that must not open it. A route that is new is in here by being registered. */
import { type Scope, scopes } from '@fuse/contract';
import { rawExchange, upgradeHead } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from './db/test-database.ts';
import type { ListedRoute } from './http/route-list.ts';
import { startTestOrchestrator, type TestOrchestrator } from './test-orchestrator.ts';

/** What asks for no credential, and why. */
const OPEN = [
  'GET /docs', // holds nothing of anybody
  'GET /health', // probes
  'GET /metrics',
  'GET /openapi.json',
  'GET /ready',
  'GET /v1/downloads/:id/:position', // the signature in its URL
  'GET /v1/version',
  'POST /login', // the master token in its body
  'POST /logout',
  'POST /v1/hosts/join', // the join token in its body
];

const UNKNOWN: Record<string, string> = { environments: 'fuse-none', snapshots: 'snap_none', runs: 'run_none' };
/** Enough to get past the parsing of every route's body. */
const BODY = {
  cmd: ['true'],
  for: 'port',
  port: 80,
  path: '/tmp/x',
  from: '/tmp/x',
  to: '/tmp/y',
  target: '/tmp/x',
  mode: '0644',
  uid: 0,
  gid: 0,
  pattern: '*',
  query: 'x',
  edits: [{ old: 'a', new: 'b' }],
  old: 'a',
  new: 'b',
  patch: '--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n',
  task_id: 'never',
  action: 'screenshot',
};
const ACTIONS: Record<string, string> = { 'POST /v1/snapshots/:id': 'restore', 'POST /v1/runs/:id': 'cancel' };

const nameOf = ({ method, url, action }: ListedRoute) =>
  `${method} ${url}${action === undefined ? '' : `?action=${action}`}`;

interface Outcome {
  status: number;
  code: string | undefined;
  message: string;
}

describe.each(engines)('credentials on %s', (engine) => {
  let scene: TestOrchestrator;
  let guarded: ListedRoute[];
  /** Ids of what tenant `acme` has, by the noun of the path. */
  const acme: Record<string, string> = {};
  const keys: Record<string, string> = {};

  beforeAll(async () => {
    scene = await startTestOrchestrator(engine);
    guarded = scene.orchestrator.routes.filter(({ config }) => config.probe !== true && config.auth !== 'none');
    for (const id of ['acme', 'other', 'stopped']) await scene.call('POST', '/v1/tenants', { id });
    const inAcme = { headers: { 'fuse-tenant': 'acme' } };
    const make = async (path: string, body: object) => (await scene.call('POST', path, body, inAcme)).body.id;
    acme.environments = await make('/v1/environments', { task_id: 'mine' });
    acme.snapshots = await make('/v1/environments/fuse-mine/snapshots', {});
    acme.runs = await make('/v1/runs', { cmd: ['true'], wait: true });
    acme.files = (await scene.call('POST', '/v1/files', 'bytes', inAcme)).body.id;
    acme['api-keys'] = await make('/v1/api-keys', {});
    expect(Object.values(acme).every((id) => typeof id === 'string')).toBe(true);
    const mint = async (name: string, body: object) => {
      const made = await scene.call('POST', '/v1/api-keys', body);
      keys[name] = made.body.key;
      return made.body.id;
    };
    const revoked = await mint('revoked', { scopes: ['admin'] });
    await scene.call('DELETE', `/v1/api-keys/${revoked}`);
    await mint('expired', { scopes: ['admin'], expires_in_seconds: 1 });
    await mint('disabled', { scopes: ['admin'], tenant_id: 'stopped' });
    await scene.call('PATCH', '/v1/tenants/stopped', { disabled: true });
    await mint('plain', { tenant_id: 'acme' });
    await mint('foreign', { scopes: [...scopes], tenant_id: 'other' });
    await mint('admin', { scopes: [...scopes], tenant_id: 'acme' });
    for (const scope of scopes) {
      await mint(`without ${scope}`, { scopes: without(scope), tenant_id: 'acme' });
      await mint(`${scope} alone`, { scopes: [scope], tenant_id: 'acme' });
    }
    await new Promise((resolve) => setTimeout(resolve, 1_100)); // the expired one expires
  }, 60_000);
  afterAll(() => scene?.[Symbol.asyncDispose]());

  const without = (one: Scope) => scopes.filter((scope) => scope !== 'admin' && scope !== one);

  /** Only the head of an answer is waited for: streams do not end. */
  async function ask(
    route: ListedRoute,
    headers: Record<string, string>,
    ids: Record<string, string>,
  ): Promise<Outcome> {
    const action = route.action ?? ACTIONS[`${route.method} ${route.url}`];
    const query = new URLSearchParams({ path: '/tmp/x', ...(action === undefined ? {} : { action }) });
    const noun = route.url.split('/')[2] ?? '';
    const path = route.url
      .replace(':id', ids[noun] ?? UNKNOWN[noun] ?? 'none')
      .replace(':exec_id', 'exec-1')
      .replace(':pid', '1')
      .replace(':port', '80')
      .replace(':operation', 'stat')
      .replace('*', 'x');
    const cut = new AbortController();
    const hasBody = !['GET', 'HEAD', 'DELETE'].includes(route.method);
    const response = await fetch(`${scene.orchestrator.url}${path}?${query}`, {
      method: route.method,
      headers,
      ...(hasBody ? { body: JSON.stringify(BODY) } : {}),
      signal: cut.signal,
    });
    const isError = response.status >= 400 && route.method !== 'HEAD';
    const { error } = isError ? ((await response.json()) as { error: { code: string; message: string } }) : {};
    cut.abort();
    return { status: response.status, code: error?.code, message: error?.message ?? '' };
  }

  async function upgrade(path: string, protocol: string, headers: Record<string, string>): Promise<string> {
    const handshake = { 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version': '13' };
    const exchange = rawExchange(scene.orchestrator.url, upgradeHead(path, protocol, { ...headers, ...handshake }));
    const head = await exchange.until((text) => text.includes('\r\n\r\n'));
    exchange.socket.destroy();
    return head.slice('HTTP/1.1 '.length, 'HTTP/1.1 '.length + 3);
  }

  const bearer = (name: string) => ({ authorization: `Bearer ${keys[name]}` });
  const each = async (check: (route: ListedRoute, where: string) => Promise<void>) => {
    for (const route of guarded) await check(route, nameOf(route));
  };

  it('every route says who may call it, and the open ones are those that are known to be', () => {
    for (const route of guarded)
      expect([nameOf(route), route.config.auth === 'master' || route.config.scope !== undefined]).toEqual([
        nameOf(route),
        true,
      ]);
    const open = scene.orchestrator.routes.filter((route) => !guarded.includes(route));
    expect(open.map(nameOf).sort()).toEqual(OPEN);
    expect(guarded.length).toBeGreaterThan(60);
  });

  it.each([
    ['none', {}],
    ['malformed', { authorization: 'bearer lower' }],
  ])('%s: 401', async (_, headers) => {
    await each(async (route, where) => {
      const { status, code, message } = await ask(route, headers, acme);
      const expected =
        route.method === 'HEAD' ? [401, undefined, ''] : [401, 'unauthorized', 'missing or malformed credentials'];
      expect([where, status, code, message]).toEqual([where, ...expected]);
    });
    for (const { path, protocols } of scene.orchestrator.upgrades)
      for (const protocol of protocols) expect(await upgrade(path, protocol, headers)).toBe('401');
  });

  it.each(['wrong', 'wrong key', 'wrong environment', 'revoked', 'expired'])('%s: 401', async (name) => {
    const tokens: Record<string, string> = {
      wrong: 'not-the-master-token',
      'wrong key': `fuse_sk_${'A'.repeat(43)}`,
      'wrong environment': `fuse_env_${'A'.repeat(43)}`,
    };
    const headers = { authorization: `Bearer ${tokens[name] ?? keys[name]}` };
    await each(async (route, where) => {
      const { status, code, message } = await ask(route, headers, acme);
      const expected = route.method === 'HEAD' ? [401, undefined, ''] : [401, 'unauthorized', 'invalid token'];
      expect([where, status, code, message]).toEqual([where, ...expected]);
    });
    for (const { path, protocols } of scene.orchestrator.upgrades)
      for (const protocol of protocols) expect(await upgrade(path, protocol, headers)).toBe('401');
  });

  it('of a disabled tenant: 403 forbidden', () =>
    each(async (route, where) => {
      const { status, code } = await ask(route, bearer('disabled'), {});
      expect([where, status, code]).toEqual([where, 403, route.method === 'HEAD' ? undefined : 'forbidden']);
    }));

  it('without the scope: 403 unauthorized, whether or not there is such a thing', async () => {
    for (const ids of [acme, {}])
      await each(async (route, where) => {
        const { auth, scope } = route.config;
        const accepted = [scope ?? []].flat();
        const other = accepted.includes('snapshots') ? 'runs' : 'snapshots';
        const name = auth === 'master' ? 'admin' : accepted.length === 1 ? `without ${accepted[0]}` : `${other} alone`;
        const { status, code } = await ask(route, bearer(name), ids);
        expect([where, name, status, code]).toEqual([
          where,
          name,
          403,
          route.method === 'HEAD' ? undefined : 'unauthorized',
        ]);
      });
    for (const { path, scope } of scene.orchestrator.upgrades)
      expect([path, await upgrade(path.replace(':id', 'fuse-mine'), 'websocket', bearer(`without ${scope}`))]).toEqual([
        path,
        '403',
      ]);
  });

  it('with the scope alone: answered', () =>
    each(async (route, where) => {
      const scope = [route.config.scope ?? []].flat().at(-1);
      if (scope === undefined) return;
      const { status } = await ask(route, bearer(`${scope} alone`), {});
      expect([where, [401, 403].includes(status)]).toEqual([where, false]);
    }));

  it('a plain key: every route but those of the master, of exec and of admin', async () => {
    await each(async (route, where) => {
      const { auth, scope } = route.config;
      const isRefused = auth === 'master' || [scope ?? []].flat().every((one) => one === 'exec' || one === 'admin');
      const { status } = await ask(route, bearer('plain'), {});
      if (isRefused) expect([where, status]).toEqual([where, 403]);
      else expect([where, [401, 403].includes(status)]).toEqual([where, false]);
    });
    const ticket = { for: 'attach' };
    const asked = await scene.call('POST', '/v1/environments/none/tickets', ticket, { headers: bearer('plain') });
    expect(asked).toMatchObject({ status: 403, body: { error: { code: 'unauthorized', details: { scope: 'exec' } } } });
    expect(await upgrade('/v1/environments/fuse-none/attach', 'websocket', bearer('plain'))).toBe('403');
    expect(await upgrade('/v1/environments/fuse-none/ports/80/connect', 'websocket', bearer('plain'))).toBe('404');
  });

  it('an environment’s own: that environment, and of it what its scopes say', async () => {
    const inAcme = { headers: { 'fuse-tenant': 'acme' } };
    const file = '/v1/environments/fuse-mine/files?path=/fuse/auth-token';
    keys.own = (await scene.call('GET', file, undefined, inAcme)).body;
    expect(keys.own).toMatch(/^fuse_env_[\w-]{43}$/);
    await each(async (route, where) => {
      const { auth, scope } = route.config;
      const isItsOwn = route.url.startsWith('/v1/environments/:id') && !route.url.endsWith('/placement'); // of hosts
      const hasScope = [scope ?? []]
        .flat()
        .some((one) => ['environments:read', 'exec', 'files', 'ports'].includes(one));
      const { status } = await ask(route, bearer('own'), {});
      const expected = auth === 'master' || !hasScope || !isItsOwn ? 403 : 404;
      expect([where, status]).toEqual([where, expected]);
    });
    const own = (path: string) => scene.call('GET', path, undefined, { headers: bearer('own') });
    expect((await own('/v1/environments/fuse-mine')).status).toBe(200);
    expect((await own('/v1/environments/fuse-mine/execs')).status).toBe(200);
    expect(await upgrade('/v1/environments/fuse-none/attach', 'websocket', bearer('own'))).toBe('404');
  });

  it('of another tenant: what is there answers as what is not, and nothing comes of it', async () => {
    const withIds = guarded.filter(({ url, config }) => url.includes(':id') && config.auth !== 'master');
    for (const route of withIds) {
      const foreign = await ask(route, bearer('foreign'), acme);
      const unknown = await ask(route, bearer('foreign'), {});
      const isOfTheFleet = route.url.startsWith('/v1/hosts');
      expect([nameOf(route), foreign.status, foreign.code]).toEqual([nameOf(route), unknown.status, unknown.code]);
      // 400: what is looked at before anything is looked up.
      if (!isOfTheFleet) expect([400, 404]).toContain(foreign.status);
    }
    for (const { path } of scene.orchestrator.upgrades)
      expect(['400', '404']).toContain(
        await upgrade(path.replace(':id', 'fuse-mine').replace(':port', '80'), 'websocket', bearer('foreign')),
      );
    const inAcme = { headers: { 'fuse-tenant': 'acme' } };
    expect((await scene.call('GET', '/v1/environments/fuse-mine', undefined, inAcme)).body.state).toBe('running');
    for (const [noun, id] of Object.entries(acme))
      if (noun !== 'api-keys')
        expect((await scene.call('GET', `/v1/${noun}/${id}`, undefined, inAcme)).status).toBe(200);
    for (const noun of ['environments', 'snapshots', 'runs', 'api-keys']) {
      const { body } = await scene.call('GET', `/v1/${noun}`, undefined, { headers: bearer('foreign') });
      expect(JSON.stringify(body)).not.toContain(acme[noun]);
    }
  });
});
