import { connect } from 'node:net';
import { AuditEntry } from '@fuse/contract';
import { sql } from 'kysely';
import { Counter } from 'prom-client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { engines, quiet } from '../db/test-database.ts';
import type { DocumentedOperation, OpenApiDocument } from '../openapi/document.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';
import { AuditLog } from './audit-log.ts';
import { sweepAudit } from './audit-store.ts';

const MUTATING = ['post', 'put', 'patch', 'delete'];

describe.each(engines)('the audit log on %s', (engine) => {
  let test: TestOrchestrator;
  let document: OpenApiDocument;
  beforeAll(async () => {
    test = await startTestOrchestrator(engine);
    document = (await test.call('GET', '/openapi.json')).body;
    expect((await test.call('POST', '/v1/tenants', { id: 'acme' })).status).toBe(201);
  }, 120_000);
  afterAll(() => test[Symbol.asyncDispose]());

  const entries = async (query = '', init: RequestInit = {}): Promise<AuditEntry[]> => {
    const { status, body } = await test.call('GET', `/v1/audit${query}`, undefined, init);
    expect(status).toBe(200);
    return body.entries.map((entry: unknown) => AuditEntry.parse(entry));
  };
  const everything = async (): Promise<AuditEntry[]> => {
    const { body } = await test.call('GET', '/v1/audit?format=ndjson');
    return body
      .split('\n')
      .filter((line: string) => line !== '')
      .map((line: string) => AuditEntry.parse(JSON.parse(line)));
  };

  const mutating = (): { method: string; path: string; operation: DocumentedOperation; actions: string[] }[] =>
    Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods)
        .filter(([method]) => MUTATING.includes(method))
        .map(([method, operation]) => {
          const action = operation.parameters?.find(({ name }) => name === 'action')?.schema.enum;
          return { method: method.toUpperCase(), path, operation, actions: Array.isArray(action) ? action : [] };
        }),
    );

  it('has exactly one entry of every call of every route that may change something, refused or not', async () => {
    let number = 0;
    const expected = new Map<string, { route: string; status: number; kind: string }>();
    for (const { method, path, operation, actions } of mutating()) {
      const route = `${method} ${path.replace(/\{(\w+)\}/g, ':$1')}`;
      for (const action of actions.length === 0 ? [''] : [...actions, 'none-such'])
        for (const authorization of [`Bearer ${TEST_TOKEN}`, 'Bearer wrong']) {
          number += 1;
          const requestId = `audit-${number}`;
          const query = action === '' ? '' : `?action=${action}`;
          const { status } = await test.call(method, path.replace(/\{\w+\}/g, 'nobody') + query, '{}', {
            headers: { authorization, 'x-request-id': requestId },
          });
          if (operation['x-fuse-audit'] === false) continue;
          const isKnown = authorization !== 'Bearer wrong' && operation['x-fuse-auth'] !== 'none';
          expected.set(requestId, { route: `${route}${query}`, status, kind: isKnown ? 'master' : 'anonymous' });
        }
    }
    expect(expected.size).toBeGreaterThan(60);
    const seen = (await everything()).filter(({ request_id }) => request_id.startsWith('audit-'));
    expect(seen.length).toBe(expected.size);
    for (const entry of seen) {
      const { route, status, kind } = expected.get(entry.request_id) ?? {};
      expect(entry).toMatchObject({
        route,
        status,
        actor_kind: kind,
        method: route?.split(' ')[0],
        remote: '127.0.0.1',
      });
      expect(entry.code === undefined, entry.route).toBe(status !== undefined && status < 400);
    }
  });

  it('names who called, on whose behalf, and what was made or meant; never what was sent', async () => {
    const inAcme = { headers: { 'fuse-tenant': 'acme' } };
    const { body: key } = await test.call('POST', '/v1/api-keys', { scopes: ['environments:write', 'admin'] }, inAcme);
    const asKey = { headers: { authorization: `Bearer ${key.key}` } };
    expect(
      (await test.call('POST', '/v1/environments', { task_id: 'mine', env: { SECRET: 'hunter2' } }, asKey)).status,
    ).toBe(201);
    await test.call('POST', '/v1/environments/fuse-mine?action=exec', { cmd: ['echo', 'hunter2'] }, asKey);
    await test.call('POST', '/v1/environments/fuse-mine/snapshots', {}, asKey);
    await test.call('POST', '/v1/environments/fuse-mine/execs?stream=text', { cmd: ['echo', 'hunter2'] }, asKey);
    await test.call('DELETE', '/v1/environments/fuse-mine', undefined, asKey);
    await test.call('DELETE', '/v1/hosts/host-1', undefined, asKey);
    await expect.poll(async () => (await entries(`?actor=${key.id}`)).length).toBe(6);
    const [refused, destroyed, streamed, snapshot, exec, created] = await entries(`?actor=${key.id}`);
    const who = { actor_kind: 'api_key', actor: key.id, tenant_id: 'acme' };
    expect(created).toMatchObject({ ...who, route: 'POST /v1/environments', target: 'fuse-mine', status: 201 });
    expect(exec).toMatchObject({ ...who, route: 'POST /v1/environments/:id?action=exec', target: 'fuse-mine' });
    expect(snapshot).toMatchObject({ ...who, status: 201, target: expect.stringMatching(/^fuse-mine\/.+/) });
    expect(streamed).toMatchObject({
      ...who,
      route: 'POST /v1/environments/:id/execs',
      target: 'fuse-mine',
      status: 200,
    });
    expect(destroyed).toMatchObject({ ...who, target: 'fuse-mine', status: 204 });
    expect(refused).toMatchObject({ ...who, target: 'host-1', status: 403, code: 'unauthorized' });
    const text = JSON.stringify(await everything());
    for (const secret of ['hunter2', TEST_TOKEN, key.key]) expect(text).not.toContain(secret);
    // An admin key sees its own tenant's, and nothing of others.
    const own = await entries('?limit=200', asKey);
    expect(own.length).toBeGreaterThan(4);
    expect(new Set(own.map(({ tenant_id }) => tenant_id))).toEqual(new Set(['acme']));
    expect(await entries('?limit=200', inAcme)).toEqual(own);
  });

  it('names what was made though it is not waited for, and is filed under the tenant that was changed', async () => {
    const { body: key } = await test.call('POST', '/v1/api-keys', { tenant_id: 'acme', scopes: ['admin'] });
    const asKey = { headers: { authorization: `Bearer ${key.key}` } };
    const newest = async (query: string) => (await entries(`?limit=1&${query}`, asKey))[0];
    expect(await newest('route=/v1/api-keys')).toMatchObject({ target: key.id, actor_kind: 'master', status: 201 });
    expect((await test.call('POST', '/v1/environments', { task_id: 'later', wait: false }, asKey)).status).toBe(202);
    expect(await newest('route=/v1/environments')).toMatchObject({ target: 'fuse-later', status: 202 });
    await expect
      .poll(async () => (await test.call('GET', '/v1/environments/fuse-later', undefined, asKey)).body.state)
      .toBe('running');
    await test.call('POST', '/v1/environments/fuse-later?action=fork', { count: 2 }, asKey);
    expect(await newest('route=POST%20/v1/environments')).toMatchObject({
      target: expect.stringMatching(/^fuse-later\/[^/]+\/[^/]+$/),
      status: 201,
    });
    expect((await entries('?route=/v1/environments/:id%3Faction=fork', asKey)).length).toBe(1);
    await test.call('PATCH', '/v1/tenants/acme', { quotas: { environments: 7 } });
    await test.call('DELETE', '/v1/tenants/acme');
    expect(await newest('route=PATCH')).toMatchObject({ tenant_id: 'acme', target: 'acme', actor_kind: 'master' });
    expect(await newest('route=DELETE')).toMatchObject({ tenant_id: 'acme', target: 'acme', status: 409 });
    const { body: other } = await test.call('POST', '/v1/api-keys', { tenant_id: 'acme' });
    await test.call('DELETE', `/v1/api-keys/${other.id}`);
    expect(await newest('route=/v1/api-keys')).toMatchObject({ tenant_id: 'acme', target: other.id, method: 'DELETE' });
    await test.call('PATCH', '/v1/tenants/nosuch', {});
    expect(await entries('?target=nosuch')).toMatchObject([{ tenant_id: 'default', status: 404 }]);
  });

  it('is written at once, however calls follow each other', async () => {
    await using db = await openDatabase(engine === 'postgres' ? test.location : 'memory', quiet);
    await using log = new AuditLog(db, quiet, new Counter({ name: 'lost', help: 'lost', registers: [] }));
    const entry = (id: string) => ({
      actor_kind: 'anonymous' as const,
      method: 'POST',
      route: 'POST /v1/none',
      target: 'nul\0',
      status: 401,
      request_id: id,
    });
    for (let number = 0; number < 20; number += 1) await log.append(entry(`in-turn-${number}`));
    await Promise.all(Array.from({ length: 500 }, (_, number) => log.append(entry(`at-once-${number}`))));
    const { rows } = await sql<{ count: number }>`
      select count(distinct request_id)::int as count from audit where route = 'POST /v1/none'`.execute(db.query);
    expect(rows[0]?.count).toBe(520);
    await sql`delete from audit where route = 'POST /v1/none'`.execute(db.query);
  });

  it('has the upgrades, taken and refused', async () => {
    const { hostname, port } = new URL(test.orchestrator.url);
    const ask = (token: string, requestId: string) =>
      new Promise<string>((resolve) => {
        let text = '';
        const socket = connect(Number(port), hostname);
        socket.on('data', (bytes) => {
          text += bytes;
          socket.end();
        });
        socket.on('close', () => resolve(text));
        socket.write(
          `GET /v1/environments/fuse-term/attach?tty=1&cmd=sh HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nX-Request-ID: ${requestId}\r\nConnection: Upgrade\r\nUpgrade: fuse-attach/1\r\n\r\n`,
        );
      });
    await test.call('POST', '/v1/environments', { task_id: 'term' });
    expect(await ask(TEST_TOKEN, 'upgrade-1')).toMatch(/^HTTP\/1.1 101/);
    expect(await ask('wrong', 'upgrade-2')).toMatch(/^HTTP\/1.1 401/);
    await expect.poll(async () => (await entries('?route=GET')).length).toBe(2);
    const found = await entries('?route=GET%20/v1/environments/:id/attach');
    const by = (id: string) => found.find(({ request_id }) => request_id === id);
    expect(by('upgrade-1')).toMatchObject({ target: 'fuse-term', status: 101, actor_kind: 'master' });
    expect(by('upgrade-2')).toMatchObject({ status: 401, code: 'unauthorized', actor_kind: 'anonymous' });
  });

  it('is read by pages and by filters, and swept', async () => {
    const all = (await everything()).reverse();
    const paged: AuditEntry[] = [];
    let cursor = '';
    do {
      const { body } = await test.call('GET', `/v1/audit?limit=7&cursor=${cursor}`);
      paged.push(...body.entries);
      cursor = body.next_cursor ?? '';
    } while (cursor !== '');
    expect(paged).toEqual(all);
    const only = async (query: string) => (await entries(`?limit=200&${query}`)).length;
    const count = (of: (entry: AuditEntry) => boolean) => Math.min(200, all.filter(of).length);
    expect(await only('status=401')).toBe(count(({ status }) => status === 401));
    expect(await only('target=fuse-mine')).toBe(count(({ target = '' }) => /^fuse-mine(\/|$)/.test(target)));
    expect(await only('from=2100-01-01T00:00:00Z')).toBe(0);
    expect(await only('to=2000-01-01T00:00:00Z')).toBe(0);
    for (const [query, field] of [
      ['from=yesterday', 'from'],
      ['from=0000-01-01T00:00:00Z&to=0001-01-01T00:00:00Z', 'from'],
      ['status=abc', 'status'],
      ['format=xml', 'format'],
      ['cursor=zz', 'cursor'],
    ]) {
      const { status, body } = await test.call('GET', `/v1/audit?${query}`);
      expect([status, body.error.details.field]).toEqual([400, field]);
    }
    if (engine === 'postgres') {
      await using db = await openDatabase(test.location, quiet);
      expect(await sweepAudit(db.query, 3_600_000)).toBe(false);
      expect((await everything()).length).toBe(all.length);
      await sweepAudit(db.query, 0);
      expect(await everything()).toEqual([]);
    }
  });
});
