/** A credential that ends, on two replicas over one PostgreSQL: nothing new within a second, and what is open is cut. */
import { FrameClient, rawExchange, upgradeHead } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Orchestrator } from '../app.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe('on two replicas', () => {
  let scene: TestOrchestrator;
  let second: Orchestrator;
  let callSecond: TestOrchestrator['call'];
  beforeAll(async () => {
    scene = await startTestOrchestrator('postgres');
    second = await scene.another();
    callSecond = callerOf(() => second.url);
    await scene.call('POST', '/v1/tenants', { id: 'acme' });
    const inAcme = { headers: { 'fuse-tenant': 'acme' } };
    await scene.call('POST', '/v1/environments', { task_id: 'one' }, inAcme);
    await scene.call('POST', '/v1/environments/fuse-one/execs', { id: 'sleeper', cmd: ['sleep', '600'] }, inAcme);
  }, 60_000);
  afterAll(() => scene?.[Symbol.asyncDispose]());

  const mint = async (body: object) =>
    (await scene.call('POST', '/v1/api-keys', { tenant_id: 'acme', ...body })).body as { id: string; key: string };
  const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });

  /** Everything that stays open, each with how it ends. */
  async function openAll(url: string, token: string): Promise<Promise<string>[]> {
    const paths = ['/events', '/execs/sleeper/log?follow=1', '/files/watch?path=/fuse', '/execs/sleeper?wait_ms=60000'];
    const streams = paths.map(async (path) => {
      const response = fetch(`${url}/v1/environments/fuse-one${path}`, bearer(token));
      const ended = response
        .then((answer) => answer.text())
        .then(
          () => `${path} ended`,
          () => 'cut',
        );
      // One has no head before its end.
      if (!path.includes('wait_ms')) expect((await response).status).toBe(200);
      return { ended };
    });
    const open = await Promise.all(streams);
    const socket = await FrameClient.webSocket({ url, token }, '/v1/environments/fuse-one/execs/sleeper/connect');
    const raw = await FrameClient.raw({ url, token }, '/v1/environments/fuse-one/attach?tty=1&cmd=cat');
    const { ticket } = (
      await scene.call('POST', '/v1/environments/fuse-one/tickets', { for: 'exec', session: 'sleeper' }, bearer(token))
    ).body;
    const path = `/v1/environments/fuse-one/execs/sleeper/connect?ticket=${ticket}`;
    const byTicket = await FrameClient.webSocket({ url }, path);
    return [
      ...open.map(({ ended }) => ended),
      ...[socket, raw, byTicket].map(({ ended }) => ended.then(({ code }) => String(code))),
    ];
  }
  const CUT = ['cut', 'cut', 'cut', 'cut', '4401', '-1', '4401'];

  it('a revoked key opens nothing any more, and what it had opened is cut', async () => {
    const { id, key } = await mint({ scopes: ['environments:read', 'exec', 'files', 'ports'] });
    const read = () => callSecond('GET', '/v1/environments/fuse-one', undefined, bearer(key));
    expect((await read()).status).toBe(200); // remembered there now
    const open = await openAll(second.url, key);
    const { ticket } = (
      await scene.call('POST', '/v1/environments/fuse-one/tickets', { for: 'exec', session: 'sleeper' }, bearer(key))
    ).body;
    expect((await scene.call('DELETE', `/v1/api-keys/${id}`)).status).toBe(204);
    // There at once, elsewhere as soon as it is told.
    expect((await scene.call('GET', '/v1/environments/fuse-one', undefined, bearer(key))).status).toBe(401);
    await expect.poll(async () => (await read()).status, { timeout: 1_000 }).toBe(401);
    expect(await Promise.all(open)).toEqual(CUT);
    const connect = `/v1/environments/fuse-one/execs/sleeper/connect?ticket=${ticket}`;
    await expect(FrameClient.webSocket({ url: second.url }, connect)).rejects.toThrow('401');
  });

  it('an expired key does so by itself', async () => {
    const { key } = await mint({ scopes: ['admin'], expires_in_seconds: 2 });
    const open = await openAll(second.url, key);
    expect(await Promise.all(open)).toEqual(CUT);
    expect((await callSecond('GET', '/v1/api-keys', undefined, bearer(key))).status).toBe(401);
  });

  it('the keys of a tenant that is disabled, too, until it is enabled again', async () => {
    const { key } = await mint({ scopes: ['admin'] });
    const read = () => callSecond('GET', '/v1/environments/fuse-one', undefined, bearer(key));
    const open = await openAll(second.url, key);
    await scene.call('PATCH', '/v1/tenants/acme', { disabled: true });
    expect(await Promise.all(open)).toEqual(CUT);
    expect((await read()).status).toBe(403);
    await scene.call('PATCH', '/v1/tenants/acme', { disabled: false });
    await expect.poll(async () => (await read()).status).toBe(200);
  });

  it('a session that logs out, too', async () => {
    const login = await scene.call('POST', '/login', { token: 'master-token-of-the-tests' });
    const cookie = login.headers.get('set-cookie')?.split(';')[0] ?? '';
    const ask = () => fetch(`${second.url}/v1/environments`, { headers: { cookie } });
    expect((await ask()).status).toBe(200);
    const stream = await fetch(`${second.url}/v1/environments/fuse-one/events`, {
      headers: { cookie, 'fuse-tenant': 'acme' },
    });
    expect(stream.status).toBe(200);
    const head = upgradeHead('/v1/environments/fuse-one/attach?tty=1&cmd=cat', 'fuse-attach/1', {
      Cookie: cookie,
      'Fuse-Tenant': 'acme',
    });
    const terminal = rawExchange(second.url, head);
    await terminal.until((text) => text.startsWith('HTTP/1.1 101'));
    await fetch(`${scene.orchestrator.url}/logout`, { method: 'POST', headers: { cookie } });
    await expect(stream.text()).rejects.toThrow();
    expect((await terminal.ended).reset).toBe(true);
    await expect.poll(async () => (await ask()).status, { timeout: 1_000 }).toBe(401);
  });

  it('the credential of an environment that is rotated, too', async () => {
    const inAcme = { headers: { 'fuse-tenant': 'acme' } };
    const file = '/v1/environments/fuse-one/files?path=/fuse/auth-token';
    const old = (await scene.call('GET', file, undefined, inAcme)).body;
    const open = await openAll(second.url, old);
    expect((await scene.call('POST', '/v1/environments/fuse-one?action=rotate-token', undefined, inAcme)).status).toBe(
      204,
    );
    expect(await Promise.all(open)).toEqual(CUT);
    const read = (token: string) => callSecond('GET', '/v1/environments/fuse-one', undefined, bearer(token));
    expect((await read(old)).status).toBe(401);
    expect((await read((await scene.call('GET', file, undefined, inAcme)).body)).status).toBe(200);
  });
});
