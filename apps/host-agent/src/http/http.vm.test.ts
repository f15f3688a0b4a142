import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TEST_SHAPE, TEST_TAG, TestHost } from '../vms/test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

const order = { image: 'base', shape: TEST_SHAPE, tag: TEST_TAG, hostname: 'h' };

describe('the HTTP interface', () => {
  it('lets nobody in without the token, but for health', async () => {
    const routes = [
      ['GET', '/v1/capacity'],
      ['GET', '/v1/images'],
      ['GET', '/v1/vms'],
      ['PUT', '/v1/vms/x'],
      ['DELETE', '/v1/vms/x'],
      ['PUT', '/v1/vms/x/files'],
      ['PUT', '/v1/vms/x/execs/y'],
      ['GET', '/v1/vms/x/execs'],
      ['GET', '/v1/vms/x/execs/y/log'],
      ['POST', '/v1/vms/x/execs/y/stdin'],
      ['POST', '/v1/vms/x/execs/y/signal'],
      ['GET', '/v1/vms/x/processes'],
      ['POST', '/v1/vms/x/processes/7/signal'],
      ['POST', '/v1/vms/x/outputs'],
      ['POST', '/v1/vms/x/pause'],
      ['POST', '/v1/vms/x/resume'],
      ['POST', '/v1/vms/x/restore'],
      ['PUT', '/v1/vms/x/snapshots/y'],
      ['GET', '/v1/snapshots'],
      ['GET', '/v1/snapshots/y'],
      ['DELETE', '/v1/snapshots/y'],
      ['GET', '/nowhere'],
    ] as const;
    for (const authorization of [undefined, '', 'Bearer', 'Bearer wrong', 'Basic dG9rZW4=', 'token-of-the-test-host'])
      for (const [method, path] of routes) {
        const headers = authorization === undefined ? {} : { authorization };
        const response = await fetch(`${host.url}${path}`, { method, headers });
        expect(response.status, `${method} ${path} with ${authorization}`).toBe(401);
        expect(await response.json()).toMatchObject({ error: { code: 'unauthorized' } });
      }
    expect(await (await fetch(`${host.url}/v1/health`)).json()).toEqual({ status: 'ok' });
  });

  it('tells what the host has', async () => {
    const capacity = await host.call<Record<string, unknown>>('GET', '/v1/capacity');
    expect(capacity).toMatchObject({ cpus: 8, ram_mb: 8_192, vm_count: 249, gpus: 0, backend: 'qemu' });
    expect(capacity.storage_gb).toBeGreaterThan(0);
    expect(capacity.free_storage_gb).toBeLessThanOrEqual(Number(capacity.storage_gb));
    const { images } = await host.call<{ images: { name: string; digest: string }[] }>('GET', '/v1/images');
    expect(images.find(({ name }) => name === 'base')?.digest).toMatch(/^[0-9a-f]{64}$/);
    expect(await host.list()).toEqual({ vms: [] });
  });

  it('tells what it can start at once', async () => {
    const vm = await host.create();
    const { templates } = await host.call<{ templates: unknown[] }>('GET', '/v1/capacity');
    expect(templates).toContainEqual({ image: 'base', ...TEST_SHAPE });
    await host.destroy(vm.id);
  });

  it('refuses a leader whose time is over, and does nothing for it', async () => {
    const vm = await host.create();
    const ask = async (method: string, path: string, fence: string) => {
      const headers = { ...host.authorization, 'fuse-fence': fence };
      return (await fetch(`${host.url}${path}`, { method, headers })).status;
    };
    expect(await ask('GET', '/v1/capacity', `7 ${TEST_TAG}`)).toBe(200);
    expect(await ask('DELETE', `/v1/vms/${vm.id}`, `6 ${TEST_TAG}`)).toBe(409);
    expect(await ask('DELETE', `/v1/vms/${vm.id}`, 'nonsense')).toBe(400);
    expect((await host.list()).vms).toHaveLength(1);
    expect(await ask('DELETE', `/v1/vms/${vm.id}`, `7 ${TEST_TAG}`)).toBe(200);
  });

  it.each([
    ['PUT', '/v1/vms/Upper', order, 'id'],
    ['PUT', '/v1/vms/..%2f..%2fetc', order, 'id'],
    ['PUT', `/v1/vms/${'x'.repeat(64)}`, order, 'id'],
    ['PUT', '/v1/vms/a', {}, 'image'],
    ['PUT', '/v1/vms/a', { ...order, hostname: '-x' }, 'hostname'],
    ['PUT', '/v1/vms/a', { ...order, tag: '' }, 'tag'],
    ['PUT', '/v1/vms/a', { ...order, shape: { ...TEST_SHAPE, cpus: -1 } }, 'shape.cpus'],
    ['PUT', '/v1/vms/a', { ...order, start: 'warm' }, 'start'],
    ['PUT', '/v1/vms/a/execs/..', { argv: ['x'], timeout_ms: 1, max_log_bytes: 1 }, undefined],
    ['PUT', '/v1/vms/a/execs/a.b', { argv: ['x'], timeout_ms: 1, max_log_bytes: 1 }, 'eid'],
    ['PUT', '/v1/vms/a/execs/b', { argv: [], timeout_ms: 1, max_log_bytes: 1 }, 'argv'],
    ['PUT', '/v1/vms/a/execs/b', { argv: ['x'], timeout_ms: -1, max_log_bytes: 1 }, 'timeout_ms'],
    ['GET', '/v1/vms/a/execs/b?wait_ms=x', undefined, 'wait_ms'],
    ['GET', '/v1/vms/a/execs/b/log?offset=-1', undefined, 'offset'],
    ['GET', '/v1/vms/a/execs/b/log?follow=yes', undefined, 'follow'],
    ['GET', '/v1/vms/a/execs/b/result?limit=99999999999', undefined, 'limit'],
    ['POST', '/v1/vms/a/outputs', { cwd: '/', globs: ['*'] }, 'key_prefix'],
    ['PUT', '/v1/vms/a', { ...order, seed: {} }, 'seed.snapshot_id'],
    ['PUT', '/v1/vms/a', { ...order, seed: { snapshot_id: 's', fallback: 'memory' } }, 'seed.fallback'],
    ['PUT', '/v1/vms/a/snapshots/..', { tag: 't', include_memory: true }, undefined],
    ['PUT', '/v1/vms/a/snapshots/S', { tag: 't', include_memory: true }, 'sid'],
    ['PUT', '/v1/vms/a/snapshots/s', { tag: 't' }, 'include_memory'],
    ['PUT', '/v1/vms/a/snapshots/s?wait=long', { tag: 't', include_memory: true }, 'wait'],
    ['PUT', '/v1/vms/a/snapshots/s', { tag: 't', include_memory: true }, undefined],
    ['GET', '/v1/snapshots/s?wait_ms=-1', undefined, 'wait_ms'],
    ['GET', '/v1/snapshots/nowhere', undefined, undefined],
    ['DELETE', '/v1/snapshots/..%2fvms', undefined, 'sid'],
    ['POST', '/v1/vms/a/pause', undefined, undefined],
    ['POST', '/v1/vms/a/resume', undefined, undefined],
    ['POST', '/v1/vms/a/restore', { snapshot_id: 's' }, 'restore_id'],
    ['POST', '/v1/vms/a/restore', { snapshot_id: 's', restore_id: 'r' }, undefined],
  ])('answers %s %s with a mistake in it by 4xx and the field', async (method, path, body, field) => {
    const response = await host.fetch(method, path, body);
    expect(response.status).toBeGreaterThanOrEqual(400);
    expect(response.status).toBeLessThan(500);
    const { error } = (await response.json()) as { error: { code: string; details?: { field: string } } };
    if (field === undefined) return;
    expect(error.code).toBe('invalid_argument');
    expect(error.details?.field).toBe(field);
  });

  it('answers malformed and oversized bodies by 4xx', async () => {
    const send = async (body: string, path = '/v1/vms/a/outputs', method = 'POST') =>
      fetch(`${host.url}${path}`, {
        method,
        headers: { authorization: 'Bearer token-of-the-test-host', 'content-type': 'application/json' },
        body,
      });
    for (const body of ['{', '', '[]', 'null', '"x"', '{"globs":1}']) {
      const response = await send(body);
      expect(response.status, body).toBe(400);
      expect(await response.json()).toMatchObject({ error: { code: 'invalid_argument' } });
    }
    const large = await send(JSON.stringify({ globs: ['x'.repeat(70_000)] }));
    expect(large.status).toBe(413);
    expect(await large.json()).toMatchObject({ error: { code: 'payload_too_large' } });
  });

  it('knows what it does not know', async () => {
    const cases = [
      ['GET', '/v1/vms/none', 'not_found'],
      ['GET', '/v1/vms/none/execs/x', 'not_found'],
      ['GET', '/v1/vms/none/execs/x/log', 'not_found'],
      ['DELETE', '/v1/vms/none/execs/x', 'not_found'],
      ['GET', '/v2/vms', 'route_not_found'],
      ['POST', '/v1/vms', 'route_not_found'],
    ] as const;
    for (const [method, path, code] of cases) {
      const response = await host.fetch(method, path);
      expect(response.status).toBe(404);
      expect(await response.json()).toMatchObject({ error: { code } });
    }
    expect(await host.destroy('none')).toMatchObject({ destroyed: false });
  });

  it('names the images there are when asked for another', async () => {
    const response = await host.fetch('PUT', '/v1/vms/a', { ...order, image: 'windows' });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: 'invalid_argument', details: { field: 'image' } } });
    expect(await host.list()).toEqual({ vms: [] });
  });
});

describe('room on the host', () => {
  it('refuses a VM when the disk is nearly full, and leaves nothing', async () => {
    await using full = await TestHost.open({ storageReserveMb: 1024 ** 3 });
    const response = await full.fetch('PUT', '/v1/vms/a', order);
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).not.toBeNull();
    expect(await response.json()).toMatchObject({ error: { code: 'unavailable' } });
    expect(await full.list()).toEqual({ vms: [] });
  });

  it('refuses a VM beyond the number that it may have', async () => {
    await using small = await TestHost.open({ capacity: { cpus: 1, ramMb: 1, storageGb: 1, maxVms: 1 } });
    await small.create();
    await expect(small.create()).rejects.toMatchObject({ status: 503, code: 'unavailable' });
    expect((await small.list()).vms.length).toBe(1);
  });

  it('is refused to a second host agent on the same data directory', async () => {
    await expect(host.start()).rejects.toMatchObject({ code: 'conflict' });
  });
});
