import { describe, expect, it } from 'vitest';
import { FuseClient } from './client.ts';
import { FuseConnectionError, isNotFound } from './errors.ts';
import { TestServer } from './test-server.ts';

const clientOf = (server: TestServer) => new FuseClient({ baseUrl: server.url, random: () => 0 });

describe('snapshots', () => {
  it('are taken, found and restored', async () => {
    await using server = await TestServer.start();
    const { snapshots } = clientOf(server);
    const taken = await snapshots.create('vm/1', { comment: 'before', include_memory: false });
    expect(taken).toMatchObject({ id: 'snap-1', vm_id: 'vm%2F1', comment: 'before' });
    expect(await snapshots.get(taken.id)).toEqual(taken);
    await snapshots.restore(taken.id);
    expect(server.seen.map(({ method, path, body }) => [method, path, body])).toEqual([
      ['POST', '/v1/environments/vm%2F1/snapshots', '{"comment":"before","include_memory":false}'],
      ['GET', '/v1/snapshots/snap-1', ''],
      ['POST', '/v1/snapshots/snap-1?action=restore', ''],
    ]);
  });

  it('are taken with a body, and restored without one and its type', async () => {
    await using server = await TestServer.start();
    const { snapshots } = clientOf(server);
    const { id } = await snapshots.create('vm');
    await snapshots.restore(id);
    const [create, restore] = server.seen;
    expect(create).toMatchObject({ body: '{}', headers: { 'content-type': 'application/json' } });
    expect(restore?.headers['content-type']).toBeUndefined();
  });

  it('are listed over all pages, by every filter under its wire name', async () => {
    await using server = await TestServer.start();
    const { snapshots } = clientOf(server);
    for (let i = 0; i < 5; i++) await snapshots.create('vm');
    expect((await snapshots.list()).map(({ id }) => id)).toEqual(['snap-1', 'snap-2', 'snap-3', 'snap-4', 'snap-5']);
    const page = await snapshots.listPage({ limit: 2 });
    expect([page.snapshots.length, page.nextCursor]).toEqual([2, '2']);
    server.seen.length = 0;
    await snapshots.listPage({
      vmId: 'v',
      taskId: 't',
      tenantId: 'n',
      state: 'ready',
      mode: 'build',
      name: 'a b',
      layerKey: 'l',
      arch: 'amd64',
      limit: 7,
      cursor: '0',
    });
    expect(Object.fromEntries(new URL(server.seen[0]?.path ?? '', server.url).searchParams)).toEqual({
      vm_id: 'v',
      task_id: 't',
      tenant_id: 'n',
      state: 'ready',
      mode: 'build',
      name: 'a b',
      layer_key: 'l',
      arch: 'amd64',
      limit: '7',
      cursor: '0',
    });
  });

  it('are resolved by layer key, or null', async () => {
    await using server = await TestServer.start();
    const { snapshots } = clientOf(server);
    const { id } = await snapshots.create('vm', { layer_key: 'key' });
    expect((await snapshots.resolve('key', 'amd64'))?.id).toBe(id);
    expect(await snapshots.resolve('other', 'amd64')).toBeNull();
    expect(server.seen.at(-1)?.path).toBe('/v1/snapshots/resolve?layer_key=other&arch=amd64');
  });

  it('say what deleting them freed', async () => {
    await using server = await TestServer.start();
    const { snapshots } = clientOf(server);
    await snapshots.create('vm');
    await snapshots.create('vm');
    const freed = { freedHostBytes: 3_000_000_000, freedStoreBytes: 7 };
    expect(await snapshots.delete('snap-1')).toEqual(freed);
    expect(await snapshots.delete('snap-2', { force: true })).toEqual(freed);
    expect(server.seen.slice(2).map(({ path }) => path)).toEqual([
      '/v1/snapshots/snap-1',
      '/v1/snapshots/snap-2?force=true',
    ]);
    await expect(snapshots.delete('snap-1')).rejects.toSatisfy(isNotFound);
  });

  it('are deleted once when the answer is lost, what that freed unknown', async () => {
    await using server = await TestServer.start({ loseAnswers: { method: 'DELETE', times: 1 } });
    const { snapshots } = clientOf(server);
    const { id } = await snapshots.create('vm');
    expect(await snapshots.delete(id)).toEqual({ freedHostBytes: undefined, freedStoreBytes: undefined });
    expect(server.snapshots.size).toBe(0);
  });

  it('fall back to their disk where that is asked for', async () => {
    await using server = await TestServer.start();
    const { snapshots } = clientOf(server);
    const { id } = await snapshots.create('vm');
    await snapshots.restore(id, { fallback: 'disk' });
    expect(server.seen.at(-1)?.path).toBe('/v1/snapshots/snap-1?action=restore&fallback=disk');
  });

  it('are neither taken nor restored a second time when the answer is lost', async () => {
    await using server = await TestServer.start({ loseAnswers: { method: 'POST', times: 1 } });
    const { snapshots } = clientOf(server);
    await expect(snapshots.create('vm')).rejects.toBeInstanceOf(FuseConnectionError);
    server.script.loseAnswers.times = 1;
    await expect(snapshots.restore('snap-1')).rejects.toBeInstanceOf(FuseConnectionError);
    expect([server.snapshots.size, server.actions]).toEqual([1, ['restore']]);
  });
});

describe('environments', () => {
  it('are forked, alone or many at once', async () => {
    await using server = await TestServer.start();
    const { environments } = clientOf(server);
    expect((await environments.fork('vm')).id).toBe('new-vm');
    const forks = await environments.forkMany('vm', { count: 3, reuse_snapshot_id: 'snap-1' });
    expect([forks.snapshot_id, forks.environments.map(({ id }) => id)]).toEqual([
      'snap-1',
      ['new-vm-0', 'new-vm-1', 'new-vm-2'],
    ]);
    expect(server.seen.map(({ path, body }) => [path, body])).toEqual([
      ['/v1/environments/vm?action=fork', '{}'],
      ['/v1/environments/vm?action=fork', '{"count":3,"reuse_snapshot_id":"snap-1"}'],
    ]);
  });

  it('are paused and resumed, again when the answer is lost', async () => {
    await using server = await TestServer.start({ loseAnswers: { method: 'POST', times: 1 } });
    const { environments } = clientOf(server);
    expect((await environments.pause('vm')).state).toBe('paused');
    expect((await environments.resume('vm')).state).toBe('running');
    expect(server.actions).toEqual(['pause', 'pause', 'resume']);
  });

  it('are never forked a second time when the answer is lost', async () => {
    await using server = await TestServer.start({ loseAnswers: { method: 'POST', times: 2 } });
    const { environments } = clientOf(server);
    await expect(environments.fork('vm')).rejects.toBeInstanceOf(FuseConnectionError);
    await expect(environments.forkMany('vm', { count: 2 })).rejects.toBeInstanceOf(FuseConnectionError);
    expect(server.actions).toEqual(['fork', 'fork']);
  });

  it('and snapshots are made a second time only under an idempotency key', async () => {
    await using server = await TestServer.start();
    const { environments, snapshots } = clientOf(server);
    const request = { task_id: 't', seed_snapshot_id: 'snap-1', fallback: 'disk', idle_action: 'pause' } as const;
    const calls = [
      (options: { idempotencyKey?: string }) => environments.create(request, options),
      (options: { idempotencyKey?: string }) => environments.fork('vm', {}, options),
      (options: { idempotencyKey?: string }) => environments.forkMany('vm', { count: 2 }, options),
      (options: { idempotencyKey?: string }) => snapshots.create('vm', {}, options),
    ];
    for (const call of calls) {
      server.seen.length = 0;
      server.script.loseAnswers = { method: 'POST', times: 1 };
      await expect(call({})).rejects.toBeInstanceOf(FuseConnectionError);
      server.script.loseAnswers = { method: 'POST', times: 1 };
      await call({ idempotencyKey: 'key' });
      expect(server.seen.map(({ headers }) => headers['idempotency-key'])).toEqual([undefined, 'key', 'key']);
    }
  });

  it('are created with every field that is given', async () => {
    await using server = await TestServer.start();
    const request = { task_id: 't', seed_snapshot_id: 'snap-1', fallback: 'disk', auto_resume: true } as const;
    await clientOf(server).environments.create(request);
    expect(JSON.parse(server.seen[0]?.body ?? '')).toEqual(request);
  });

  it('say in their events what they were restored from', async () => {
    await using server = await TestServer.start();
    const at = '2026-01-01T00:00:00.000Z';
    const events = [
      { id: 'e1', event: 'state', vm_id: 'vm', state: 'resuming', updated_at: at },
      { id: 'e2', event: 'state', vm_id: 'vm', state: 'running', restored_from: 'snap-1', updated_at: at },
      { id: 'e3', event: 'state', vm_id: 'vm', state: 'destroyed', updated_at: at },
    ];
    const body = events.map((event) => `id: ${event.id}\ndata: ${JSON.stringify(event)}\n\n`).join('');
    server.script.refusals = [{ status: 200, headers: { 'Content-Type': 'text/event-stream' }, body }];
    const seen: (string | undefined)[] = [];
    for await (const event of await clientOf(server).environments.events('vm')) seen.push(event.restored_from);
    expect(seen).toEqual([undefined, 'snap-1', undefined]);
  });

  it('stop waiting when aborted', async () => {
    await using server = await TestServer.start();
    const reason = new Error('enough');
    const signal = AbortSignal.abort(reason);
    const { environments, snapshots } = clientOf(server);
    const calls = [
      environments.fork('vm', {}, { signal }),
      environments.forkMany('vm', { count: 2 }, { signal }),
      environments.pause('vm', { signal }),
      environments.resume('vm', { signal }),
      environments.create({ task_id: 't' }, { signal, idempotencyKey: 'key' }),
      snapshots.create('vm', {}, { signal }),
      snapshots.get('s', { signal }),
      snapshots.list({ signal }),
      snapshots.resolve('k', 'amd64', { signal }),
      snapshots.delete('s', { signal }),
      snapshots.restore('s', { signal }),
    ];
    for (const outcome of await Promise.allSettled(calls)) expect(outcome).toEqual({ status: 'rejected', reason });
    expect(server.seen).toEqual([]);
  });
});
