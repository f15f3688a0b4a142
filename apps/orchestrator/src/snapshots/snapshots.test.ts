import { AppError, Environment, Forks, Snapshot } from '@fuse/contract';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe.each(engines)('snapshots on %s', (engine) => {
  let test: TestOrchestrator;
  beforeAll(async () => {
    test = await startTestOrchestrator(engine);
  }, 60_000);
  afterAll(() => test?.[Symbol.asyncDispose]());

  let tasks = 0;
  const newTask = () => `snap-${engine}-${++tasks}`;
  const call: TestOrchestrator['call'] = (...args) => test.call(...args);
  const create = async (more: object = {}): Promise<Environment> => {
    const answer = await call('POST', '/v1/environments', { task_id: newTask(), ...more });
    expect(answer, JSON.stringify(answer.body)).toMatchObject({ status: 201 });
    return Environment.parse(answer.body);
  };
  const snapshot = async (id: string, body?: object): Promise<Snapshot> => {
    const answer = await call('POST', `/v1/environments/${id}/snapshots`, body);
    expect(answer, JSON.stringify(answer.body)).toMatchObject({ status: 201 });
    return Snapshot.parse(answer.body);
  };
  const shell = async (id: string, script: string) => {
    const answer = await call('POST', `/v1/environments/${id}?action=exec`, { shell: script });
    expect(answer, JSON.stringify(answer.body)).toMatchObject({ status: 200 });
    return answer.body.stdout as string;
  };
  const get = async (id: string) => (await call('GET', `/v1/snapshots/${id}`)).body as Snapshot;
  const destroy = (id: string) => call('DELETE', `/v1/environments/${id}`);
  const remove = (id: string, query = '?force=true') => call('DELETE', `/v1/snapshots/${id}${query}`);
  const ids = async (query = '') =>
    ((await call('GET', `/v1/snapshots${query}`)).body.snapshots as Snapshot[]).map(({ id }) => id);
  const refused = (code: string, status: number, message?: RegExp) => ({
    status,
    body: { error: { code, ...(message === undefined ? {} : { message: expect.stringMatching(message) }) } },
  });
  /** Until `release`, every snapshot stays usable and is not durable. */
  const holdFlushing = () => {
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    test.host.snapshots.flushing = () => held;
    return () => release();
  };

  afterEach(async () => {
    test.host.before = () => {};
    test.host.after = () => {};
    test.host.snapshots.flushing = async () => {};
    test.host.snapshots.damaged.clear();
    for (const { id } of (await call('GET', '/v1/environments?limit=200')).body.environments) await destroy(id);
    for (const id of await ids('?limit=200')) await remove(id);
    await expect.poll(() => [test.host.vms.size, test.host.snapshots.kept.size], { timeout: 10_000 }).toEqual([0, 0]);
  }, 60_000);

  it('are ready when the answer comes, with all that is known of them', async () => {
    const environment = await create({ spec: { cpus: 2, ram_mb: 256, max_runtime_seconds: 600 }, env: { A: 'b' } });
    await shell(environment.id, 'echo one > file');
    const taken = await snapshot(environment.id, {
      comment: 'before the upgrade',
      name: 'base',
      metadata: { name: 'overridden', other: 'x' },
      retention_seconds: 3_600,
      export_ref: 's3://elsewhere',
    });
    expect(taken).toMatchObject({
      vm_id: environment.id,
      task_id: environment.task_id,
      tenant_id: environment.task_id,
      mode: 'manual',
      state: 'ready',
      comment: 'before the upgrade',
      name: 'base',
      arch: 'amd64',
      include_memory: true,
      pause_ms: 1.5,
      size_bytes: 4,
      stored_bytes: 4,
      host_id: 'host-1',
      image: 'base',
      spec: { cpus: 2, ram_mb: 256, storage_gb: 2, image: 'base', max_runtime_seconds: 600 },
      export_ref: 's3://elsewhere',
      exports: [{ destination: 's3://elsewhere', status: 'pending' }],
    });
    expect(taken.digest).toMatch(/^[0-9a-f]{64}$/);
    expect(taken).not.toHaveProperty('parent_snapshot_id');
    expect(Date.parse(taken.retention_until ?? '') - Date.parse(taken.created_at)).toBe(3_600_000);
    expect(await get(taken.id)).toEqual(taken);
    expect(JSON.stringify(taken)).not.toContain('null');
  });

  it('take no body, an empty one and null for one that says nothing', async () => {
    const { id } = await create();
    for (const body of [undefined, {}, 'null', { comment: null, mode: '', name: '' }])
      expect(await call('POST', `/v1/environments/${id}/snapshots`, body)).toMatchObject({
        status: 201,
        body: { mode: 'manual' },
      });
  });

  it('follow on the newest of the same environment, the first on what that began as', async () => {
    const { id } = await create();
    const first = await snapshot(id);
    const second = await snapshot(id, { include_memory: false });
    expect(second).toMatchObject({ parent_snapshot_id: first.id, include_memory: false });
    const child = await create({ seed_snapshot_id: first.id });
    expect(child).toMatchObject({ seed_snapshot_id: first.id });
    expect(await snapshot(child.id)).toMatchObject({ parent_snapshot_id: first.id });
    // A middle one goes, by force: what followed on it follows on what it followed on.
    expect((await remove(second.id, '')).status).toBe(204);
    const third = await snapshot(id);
    expect(third.parent_snapshot_id).toBe(first.id);
    const fourth = await snapshot(id);
    expect(await remove(third.id, '')).toMatchObject(refused('conflict', 409, /has children/));
    expect((await remove(third.id)).status).toBe(204);
    expect(await get(fourth.id)).toMatchObject({ parent_snapshot_id: first.id });
  });

  it('are refused where there is nothing to take one of', async () => {
    expect(await call('POST', '/v1/environments/none/snapshots')).toMatchObject(refused('not_found', 404));
    const { id } = await create();
    await call('POST', `/v1/environments/${id}?action=pause`);
    expect(await call('POST', `/v1/environments/${id}/snapshots`)).toMatchObject(
      refused('conflict', 409, /is paused, not running/),
    );
    expect(await ids()).toEqual([]);
  });

  it('leave nothing behind when the host refuses, and are not said to be ready when it breaks off', async () => {
    const { id } = await create();
    test.host.before = ({ method, path }) => {
      if (method === 'PUT' && path.includes('/snapshots/'))
        throw new AppError('unavailable', 'no disk left', { hint: 'free some' });
    };
    expect(await call('POST', `/v1/environments/${id}/snapshots`)).toMatchObject(
      refused('unavailable', 503, /no disk left/),
    );
    expect(await ids()).toEqual([]);
    test.host.before = () => {};
    test.host.snapshots.flushing = () => Promise.reject(new Error('EIO'));
    expect(await call('POST', `/v1/environments/${id}/snapshots`)).toMatchObject(refused('unavailable', 503, /EIO/));
    const [broken] = await ids();
    expect(await get(broken ?? '')).toMatchObject({ state: 'error', last_error: 'Error: EIO' });
    expect(await call('POST', `/v1/snapshots/${broken}?action=restore`)).toMatchObject(refused('conflict', 409, /EIO/));
    const seeded = await call('POST', '/v1/environments', { task_id: newTask(), seed_snapshot_id: broken });
    expect(seeded).toMatchObject(refused('conflict', 409, /is error, not ready/));
    expect((await remove(broken ?? '', '')).status).toBe(204);
  });

  it('are finished when their host was away for a moment', async () => {
    const { id } = await create();
    const release = holdFlushing();
    const waiting = call('POST', `/v1/environments/${id}/snapshots`);
    await expect.poll(() => test.host.snapshots.kept.size).toBe(1);
    expect(await call('GET', '/v1/snapshots')).toMatchObject({ body: { snapshots: [{ state: 'creating' }] } });
    await test.host.stop();
    release();
    await test.host.listen();
    expect(await waiting).toMatchObject({ status: 201, body: { state: 'ready' } });
    expect([...test.host.snapshots.taken.values()].every((times) => times === 1)).toBe(true);
  });

  it('are taken once for fifty requests with one Idempotency-Key, all of which get the same answer', async () => {
    const { id } = await create();
    const key = newTask();
    const post = (body: object = {}) =>
      call('POST', `/v1/environments/${id}/snapshots`, body, { headers: { 'idempotency-key': key } });
    const answers = await Promise.all(Array.from({ length: 50 }, () => post()));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
    expect(test.host.snapshots.kept.size).toBe(1);
    expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === 'true').length).toBe(49);
    expect(await post({ comment: 'x' })).toMatchObject(refused('conflict', 409));
  });

  it('may be asked for again under the same key when nothing came of them', async () => {
    const { id } = await create();
    const key = newTask();
    const post = () => call('POST', `/v1/environments/${id}/snapshots`, {}, { headers: { 'idempotency-key': key } });
    test.host.snapshots.flushing = () => Promise.reject(new Error('EIO'));
    expect((await post()).status).toBe(503);
    test.host.snapshots.flushing = async () => {};
    expect(await post()).toMatchObject({ status: 201, body: { state: 'ready' } });
  });

  describe('in lists', () => {
    it('are filtered by each field and by all of them', async () => {
      const one = await create();
      const other = await create();
      const layer = await snapshot(one.id, { mode: 'build', name: 'n', layer_key: 'k' });
      const plain = await snapshot(one.id, { metadata: { name: 'm' } });
      const foreign = await snapshot(other.id);
      expect(layer).not.toHaveProperty('tenant_id');
      expect(await ids()).toEqual([foreign.id, plain.id, layer.id]);
      expect(await ids(`?vm_id=${one.id}`)).toEqual([plain.id, layer.id]);
      expect(await ids(`?task_id=${other.task_id}`)).toEqual([foreign.id]);
      expect(await ids(`?tenant_id=${one.task_id}`)).toEqual([plain.id]);
      expect(await ids('?mode=build')).toEqual([layer.id]);
      expect(await ids('?mode=build&name=n')).toEqual([layer.id]);
      expect(await ids('?name=m')).toEqual([plain.id]);
      expect(await ids('?layer_key=k&arch=x86_64&state=ready')).toEqual([layer.id]);
      for (const none of ['?state=exploded', '?arch=mips', '?arch=aarch64', '?mode=nope', '?vm_id=nope', '?name=%00'])
        expect([none, await ids(none).catch(() => [])]).toEqual([none, []]);
      expect(await ids('?limit=nope&state=')).toHaveLength(3);
    });

    it('come page by page, each once, while others come and go', async () => {
      const { id } = await create();
      const made: string[] = [];
      for (let n = 0; n < 7; n += 1) made.unshift((await snapshot(id)).id);
      const seen: string[] = [];
      let cursor = '';
      do {
        const { body } = await call('GET', `/v1/snapshots?limit=2&cursor=${cursor}`);
        seen.push(...body.snapshots.map((each: Snapshot) => each.id));
        cursor = body.next_cursor ?? '';
        if (seen.length === 2) {
          await remove(made[0] ?? '');
          await snapshot(id);
        }
      } while (cursor !== '');
      expect(seen).toEqual(made);
    });

    it('refuse a cursor that is none', async () => {
      const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
      const bad = [
        'x',
        encode({ id: 'a' }),
        encode({ created_at: 'yesterday', id: 'a' }),
        encode({ created_at: '2026-02-30T00:00:00.000000Z', id: 'a' }),
        encode({ created_at: '2026-01-01T00:00:00.000000Z', id: 7 }),
        encode({ created_at: '2026-01-01T00:00:00.000000Z', id: 'a\0' }),
        encode({ created_at: '0000-01-01T00:00:00.000000Z', id: 'a' }),
        encode(null),
      ];
      for (const cursor of bad)
        expect(await call('GET', `/v1/snapshots?cursor=${cursor}`)).toMatchObject(
          refused('invalid_argument', 400, /invalid pagination cursor/),
        );
    });

    it('that are layers are those of the key that made them, and of every key with scopes of its tenant', async () => {
      const { id } = await create();
      const keyed = async (body: object) => {
        const { key, id: keyId } = (await call('POST', '/v1/api-keys', body)).body;
        const init = { headers: { authorization: `Bearer ${key}` } };
        const ask = (method: string, path: string, sent?: object) => call(method, path, sent, init);
        return { keyId, ask };
      };
      const [maker, other, scoped] = await Promise.all([keyed({}), keyed({}), keyed({ scopes: ['snapshots'] })]);
      const made = await maker.ask('POST', `/v1/environments/${id}/snapshots`, { layer_key: 'of-a-key' });
      expect(made).toMatchObject({ status: 201, body: { tenant_id: maker.keyId } });
      const resolve = '/v1/snapshots/resolve?layer_key=of-a-key&arch=amd64';
      expect((await maker.ask('GET', resolve)).body.snapshot.id).toBe(made.body.id);
      expect((await scoped.ask('GET', resolve)).body.snapshot.id).toBe(made.body.id);
      expect((await other.ask('GET', resolve)).body).toEqual({ found: false });
      expect((await call('GET', resolve)).body).toEqual({ found: false });
      const byMaker = await call('GET', `/v1/snapshots?tenant_id=${maker.keyId}`);
      expect(byMaker.body.snapshots).toMatchObject([{ id: made.body.id }]);
    });

    it('are resolved by layer, the newest ready one, and a miss is an answer', async () => {
      const { id } = await create();
      await snapshot(id, { layer_key: 'l' });
      const newest = await snapshot(id, { layer_key: 'l' });
      expect(await call('GET', '/v1/snapshots/resolve?layer_key=l&arch=x86_64')).toMatchObject({
        status: 200,
        body: { found: true, snapshot: { id: newest.id } },
      });
      for (const query of ['layer_key=l&arch=arm64', 'layer_key=other&arch=amd64', 'layer_key=l&arch=mips'])
        expect(await call('GET', `/v1/snapshots/resolve?${query}`)).toMatchObject({
          status: 200,
          body: { found: false },
        });
      expect(await call('GET', '/v1/snapshots/resolve')).toMatchObject(
        refused('invalid_argument', 400, /^layer_key is required$/),
      );
      expect(await call('GET', '/v1/snapshots/resolve?layer_key=l')).toMatchObject(
        refused('invalid_argument', 400, /^arch is required$/),
      );
    });
  });

  describe('deleted', () => {
    it('say how many bytes that freed, and are gone', async () => {
      const { id } = await create();
      await shell(id, 'printf 12345 > file');
      const taken = await snapshot(id);
      const answer = await remove(taken.id, '');
      expect(answer.status).toBe(204);
      expect(answer.headers.get('fuse-freed-host-bytes')).toBe('5');
      expect(answer.headers.get('fuse-freed-store-bytes')).toBe('0');
      expect(test.host.snapshots.kept.size).toBe(0);
      expect(await call('GET', `/v1/snapshots/${taken.id}`)).toMatchObject(refused('not_found', 404));
      expect(await remove(taken.id)).toMatchObject(refused('not_found', 404));
      expect(await remove('none', '?force=maybe')).toMatchObject(refused('invalid_argument', 400));
    });

    it('by twenty callers at once are deleted once', async () => {
      const { id } = await create();
      const taken = await snapshot(id);
      let deletions = 0;
      test.host.before = ({ method }) => void (method === 'DELETE' && deletions++);
      const answers = await Promise.all(Array.from({ length: 20 }, () => remove(taken.id)));
      const statuses = new Set(answers.map(({ status }) => status));
      expect(statuses.has(204) && [...statuses].every((status) => status === 204 || status === 404)).toBe(true);
      expect(deletions).toBe(1);
    });

    it('while they are taken leave nothing', async () => {
      const { id } = await create();
      const release = holdFlushing();
      const waiting = call('POST', `/v1/environments/${id}/snapshots`);
      await expect.poll(() => test.host.snapshots.kept.size).toBe(1);
      const [underway] = await ids();
      expect((await remove(underway ?? '', '')).status).toBe(204);
      release();
      expect(await waiting).toMatchObject(refused('conflict', 409, /was deleted while it was taken/));
      expect(await ids()).toEqual([]);
    });

    it('are finished by reconciling when their host was away', async () => {
      const { id } = await create();
      const taken = await snapshot(id);
      let away = true;
      test.host.before = ({ path }, response) => {
        if (away && path.startsWith('/v1/snapshots/')) response.destroy();
      };
      const waiting = remove(taken.id);
      await expect.poll(async () => (await get(taken.id)).state).toBe('deleting');
      expect(await call('POST', '/v1/environments', { task_id: newTask(), seed_snapshot_id: taken.id })).toMatchObject(
        refused('conflict', 409, /is deleting/),
      );
      away = false;
      expect((await waiting).status).toBe(204);
      expect(test.host.snapshots.kept.size).toBe(0);
    });

    it('never fail a fork halfway: it runs, or nothing of it is left', async () => {
      for (let round = 0; round < 5; round += 1) {
        const { id } = await create();
        const taken = await snapshot(id);
        const [forked, deleted] = await Promise.all([
          call('POST', `/v1/environments/${id}?action=fork`, { reuse_snapshot_id: taken.id, count: 2 }),
          remove(taken.id),
        ]);
        expect(deleted.status).toBe(204);
        expect([201, 404, 409]).toContain(forked.status);
        const live = (await call('GET', '/v1/environments')).body.environments as Environment[];
        expect(live.length).toBe(forked.status === 201 ? 3 : 1);
        for (const each of live) await destroy(each.id);
      }
    });
  });

  describe('restored in place', () => {
    it('make the environment what it was, under its id, and tell who listens', async () => {
      const { id } = await create();
      await shell(id, 'echo before > file');
      const taken = await snapshot(id);
      await shell(id, 'echo after > file');
      const running = call('POST', `/v1/environments/${id}?action=exec`, { cmd: ['sleep', '600'] });
      await expect.poll(() => [...test.host.vms.values()][0]?.execs.size).toBe(3);
      expect(await call('POST', `/v1/snapshots/${taken.id}?action=restore`)).toMatchObject({ status: 204, body: '' });
      expect(await running).toMatchObject(refused('vm_lost', 502));
      expect(await shell(id, 'cat file')).toBe('before\n');
      expect(await call('GET', `/v1/environments/${id}`)).toMatchObject({ body: { id, state: 'running' } });
      expect(await get(taken.id)).toMatchObject({ state: 'ready' });
      const stream = await fetch(`${test.orchestrator.url}/v1/environments/${id}/events`, {
        headers: { authorization: 'Bearer master-token-of-the-tests' },
      });
      const reader = (stream.body ?? new ReadableStream()).getReader();
      const { value } = await reader.read();
      await reader.cancel();
      expect(Buffer.from(value ?? []).toString()).toContain(`"restored_from":"${taken.id}"`);
    });

    it('also when it is paused, which it is no more then', async () => {
      const { id } = await create();
      await shell(id, 'echo before > file');
      const taken = await snapshot(id);
      await call('POST', `/v1/environments/${id}?action=pause`);
      expect((await call('POST', `/v1/snapshots/${taken.id}?action=restore`)).status).toBe(204);
      const { body } = await call('GET', `/v1/environments/${id}`);
      expect(body).toMatchObject({ state: 'running' });
      expect(body).not.toHaveProperty('paused_at');
    });

    it('are refused with what is wrong, and nothing changes', async () => {
      const restore = (id: string) => call('POST', `/v1/snapshots/${id}?action=restore`);
      for (const action of ['', '?action=', '?action=explode'])
        expect(await call('POST', `/v1/snapshots/none${action}`)).toMatchObject(refused('invalid_argument', 400));
      expect(await restore('none')).toMatchObject(refused('not_found', 404));
      expect(await call('POST', '/v1/snapshots/none?action=restore&fallback=x')).toMatchObject(
        refused('invalid_argument', 400),
      );
      const { id } = await create();
      const taken = await snapshot(id);
      await destroy(id);
      expect(await restore(taken.id)).toMatchObject(refused('not_found', 404, /is gone/));
      expect(await get(taken.id)).toMatchObject({ state: 'ready' });
    });

    it('with damaged bytes leave the environment as it was, and are errors from then on', async () => {
      const { id } = await create();
      const taken = await snapshot(id);
      await shell(id, 'echo after > file');
      test.host.snapshots.damaged.add(taken.id);
      expect(await call('POST', `/v1/snapshots/${taken.id}?action=restore`)).toMatchObject(
        refused('integrity_error', 500, /do not match their digest/),
      );
      expect(await shell(id, 'cat file')).toBe('after\n');
      expect(await get(taken.id)).toMatchObject({ state: 'error', last_error: expect.stringContaining('digest') });
    });

    it('that are gone from their host are errors', async () => {
      const { id } = await create();
      const taken = await snapshot(id);
      await test.host.snapshots.delete(taken.id);
      expect(await call('POST', `/v1/snapshots/${taken.id}?action=restore`)).toMatchObject(refused('not_found', 404));
      expect(await get(taken.id)).toMatchObject({ state: 'error' });
      expect(await call('GET', `/v1/environments/${id}`)).toMatchObject({ body: { state: 'running' } });
    });

    it('once at a time', async () => {
      const { id } = await create();
      const taken = await snapshot(id);
      const before = test.host.restored;
      const answers = await Promise.all(
        Array.from({ length: 10 }, () => call('POST', `/v1/snapshots/${taken.id}?action=restore`)),
      );
      const done = answers.filter(({ status }) => status === 204).length;
      expect(done).toBeGreaterThan(0);
      expect(test.host.restored - before).toBe(done);
      expect(answers.every(({ status }) => status === 204 || status === 409)).toBe(true);
    });

    it('while the environment is destroyed end in one of the two', async () => {
      for (let round = 0; round < 5; round += 1) {
        const { id } = await create();
        const taken = await snapshot(id);
        const [restored, destroyed] = await Promise.all([
          call('POST', `/v1/snapshots/${taken.id}?action=restore`),
          destroy(id),
        ]);
        expect(destroyed.status).toBe(204);
        expect([204, 404, 409, 502]).toContain(restored.status);
        expect((await call('GET', `/v1/environments/${id}`)).status).toBe(404);
        await expect.poll(async () => (await get(taken.id)).state).toBe('ready');
        expect(test.host.vms.size).toBe(0);
      }
    });
  });

  describe('as seeds', () => {
    it('give image, shape, variables and files, also when their source is gone', async () => {
      const source = await create({ spec: { cpus: 2, ram_mb: 300, storage_gb: 3 }, env: { A: '1', B: '2' } });
      await shell(source.id, 'echo kept > file');
      const taken = await snapshot(source.id);
      await destroy(source.id);
      const made = await create({ seed_snapshot_id: taken.id, env: { B: '3' }, spec: { cpus: 2, arch: 'x86_64' } });
      expect(made).toMatchObject({
        seed_snapshot_id: taken.id,
        host_id: 'host-1',
        spec: { cpus: 2, ram_mb: 300, storage_gb: 3, image: 'base' },
      });
      expect(await shell(made.id, 'cat file; echo $A $B')).toBe('kept\n1 3\n');
    });

    it('exclude what contradicts them', async () => {
      const source = await create({ spec: { cpus: 2 } });
      const { id } = await snapshot(source.id);
      const post = (more: object) => call('POST', '/v1/environments', { task_id: newTask(), ...more });
      const wrong = [
        [{ image: 'base' }, 'spec.image'],
        [{ cpus: 1 }, 'spec.cpus'],
        [{ ram_mb: 400 }, 'spec.ram_mb'],
        [{ storage_gb: 1 }, 'spec.storage_gb'],
        [{ arch: 'arm64' }, 'spec.arch'],
      ] as const;
      for (const [spec, field] of wrong)
        expect(await post({ seed_snapshot_id: id, spec })).toMatchObject({
          status: 400,
          body: { error: { code: 'invalid_argument', details: { field } } },
        });
      expect(await post({ seed_snapshot_id: 'none' })).toMatchObject(refused('not_found', 404));
      expect(await post({ seed_snapshot_id: 'none', spec: { image: 'x' } })).toMatchObject(
        refused('invalid_argument', 400),
      );
      expect(await post({ seed_snapshot_id: id, fallback: 'memory' })).toMatchObject(refused('invalid_argument', 400));
    });

    it('that are damaged are refused, and errors from then on; nothing of the start is left', async () => {
      const source = await create();
      const { id } = await snapshot(source.id);
      test.host.snapshots.damaged.add(id);
      const answer = await call('POST', '/v1/environments', { task_id: newTask(), seed_snapshot_id: id });
      expect(answer).toMatchObject(refused('integrity_error', 500));
      expect(await get(id)).toMatchObject({ state: 'error' });
      expect(test.host.vms.size).toBe(1);
    });

    it('pass fallback on, and say when it would help', async () => {
      const source = await create();
      const { id } = await snapshot(source.id);
      const orders: unknown[] = [];
      test.host.before = ({ method, path }) => {
        if (method === 'PUT' && /^\/v1\/vms\/[^/]+$/.test(path) && orders.push(path) === 1)
          throw new AppError('conflict', 'another CPU model', { details: { reason: 'incompatible' } });
      };
      const refusal = await call('POST', '/v1/environments', { task_id: newTask(), seed_snapshot_id: id });
      expect(refusal).toMatchObject({ status: 409, body: { error: { hint: expect.stringContaining('fallback') } } });
      expect((await create({ seed_snapshot_id: id, fallback: 'disk' })).state).toBe('running');
    });
  });

  describe('forked', () => {
    const fork = (id: string, body?: object | string, init?: RequestInit) =>
      call('POST', `/v1/environments/${id}?action=fork`, body, init);

    it('go on next to their source, before the snapshot is even durable', async () => {
      const source = await create({
        env: { A: '1' },
        spec: { cpus: 1, max_runtime_seconds: 900, labels: {} },
        idle_action: 'pause',
        auto_resume: true,
      });
      await shell(source.id, 'echo shared > file');
      const release = holdFlushing();
      const forked = await fork(source.id, { comment: 'try it' });
      expect(forked.status).toBe(201);
      const child = Environment.parse(forked.body);
      expect(child.id).toBe(`fuse-${child.task_id}`);
      expect(child.task_id).toMatch(/^fork-[0-9a-f]{32}$/);
      expect(child).toMatchObject({
        state: 'running',
        idle_action: 'pause',
        auto_resume: true,
        spec: { cpus: 1, ram_mb: 512, storage_gb: 2, image: 'base', max_runtime_seconds: 900 },
      });
      const seed = await get(child.seed_snapshot_id ?? '');
      expect(seed).toMatchObject({ state: 'creating', mode: 'auto', comment: 'try it', vm_id: source.id });
      expect(Date.parse(seed.retention_until ?? '') - Date.parse(seed.created_at)).toBe(86_400_000);
      await shell(child.id, 'echo own > file');
      expect(await shell(source.id, 'cat file; echo $A')).toBe('shared\n1\n');
      expect(await shell(child.id, 'cat file; echo $A')).toBe('own\n1\n');
      release();
      await expect.poll(async () => (await get(seed.id)).state).toBe('ready');
      const grandchild = Environment.parse((await fork(child.id)).body);
      expect(await shell(grandchild.id, 'cat file')).toBe('own\n');
      expect(await get(grandchild.seed_snapshot_id ?? '')).toMatchObject({ parent_snapshot_id: seed.id });
    });

    it('are so many as asked for, from one snapshot', async () => {
      const source = await create();
      const answer = await fork(source.id, { count: 5 });
      expect(answer.status).toBe(201);
      const { snapshot_id, environments } = Forks.parse(answer.body);
      expect(new Set(environments.map(({ id }) => id)).size).toBe(5);
      expect(environments.every((each) => each.state === 'running' && each.seed_snapshot_id === snapshot_id)).toBe(
        true,
      );
      expect(test.host.snapshots.taken.get(snapshot_id)).toBe(1);
      expect(Forks.parse((await fork(source.id, { count: 1 })).body).environments).toHaveLength(1);
    });

    it('are all admitted or none, and a refusal leaves not even a snapshot', async () => {
      const source = await create({ spec: { cpus: 2 } });
      const answer = await fork(source.id, { count: 4 }); // of 8 cpus 6 are free
      expect(answer).toMatchObject(refused('unavailable', 503, /^none of 4 forks was made, there is room for 3/));
      expect(answer.headers.get('retry-after')).toBe('5');
      expect(await ids()).toEqual([]);
      expect((await call('GET', '/v1/environments')).body.environments).toHaveLength(1);
      expect((await call('GET', '/v1/hosts/host-1')).body.allocated).toMatchObject({ cpus: 2, vm_count: 1 });
      expect((await fork(source.id, { count: 3 })).status).toBe(201);
    });

    it('start together: when one cannot, none of them is left', async () => {
      const source = await create();
      let starts = 0;
      test.host.before = ({ method, path }) => {
        if (method === 'PUT' && /^\/v1\/vms\/[^/]+$/.test(path) && ++starts === 2)
          throw new AppError('unavailable', 'the VMM did not start');
      };
      expect(await fork(source.id, { count: 3 })).toMatchObject(
        refused('unavailable', 503, /^none of 3 forks was made: provision vm fuse-fork-.*the VMM did not start$/),
      );
      expect((await call('GET', '/v1/environments')).body.environments).toHaveLength(1);
      expect(test.host.vms.size).toBe(1);
      expect(await ids()).toEqual([]);
      expect((await call('GET', '/v1/hosts/host-1')).body.allocated.vm_count).toBe(1);
    });

    it('when the snapshot is refused, nothing of them is left', async () => {
      const source = await create();
      test.host.before = ({ method, path }) => {
        if (method === 'PUT' && path.includes('/snapshots/')) throw new AppError('unavailable', 'no disk left');
      };
      expect(await fork(source.id, { count: 2 })).toMatchObject(refused('unavailable', 503, /no disk left/));
      expect((await call('GET', '/v1/environments')).body.environments).toHaveLength(1);
      expect(await ids()).toEqual([]);
    });

    it('from a snapshot of theirs that is ready, of no other', async () => {
      const source = await create();
      await shell(source.id, 'echo then > file');
      const taken = await snapshot(source.id);
      await shell(source.id, 'echo now > file');
      const child = Environment.parse((await fork(source.id, { reuse_snapshot_id: taken.id })).body);
      expect(await shell(child.id, 'cat file')).toBe('then\n');
      expect(await fork(child.id, { reuse_snapshot_id: taken.id })).toMatchObject(refused('not_found', 404));
      expect(await fork(source.id, { reuse_snapshot_id: 'none' })).toMatchObject(refused('not_found', 404));
      const release = holdFlushing();
      const waiting = snapshot(source.id);
      await expect.poll(async () => (await ids('?state=creating')).length).toBe(1);
      const [creating] = await ids('?state=creating');
      expect(await fork(source.id, { reuse_snapshot_id: creating })).toMatchObject(refused('conflict', 409));
      release();
      await waiting;
      await call('POST', `/v1/environments/${source.id}?action=pause`);
      expect(await fork(source.id)).toMatchObject({
        status: 409,
        body: { error: { code: 'conflict', hint: expect.stringContaining('reuse_snapshot_id') } },
      });
      expect((await fork(source.id, { reuse_snapshot_id: taken.id })).status).toBe(201);
    });

    it('are refused where there is nothing to fork', async () => {
      expect(await fork('none')).toMatchObject(refused('not_found', 404));
      const { id } = await create();
      for (const count of [0, -1, 101, 1.5, '2'])
        expect(await fork(id, { count })).toMatchObject({
          status: 400,
          body: { error: { code: 'invalid_argument', details: { field: 'count' } } },
        });
      expect(await fork(id, '[]')).toMatchObject(refused('invalid_argument', 400));
      expect(await fork(id, 'nonsense')).toMatchObject(refused('invalid_argument', 400));
      expect(await fork(id, 'null')).toMatchObject({ status: 201 });
    });

    it('are made once for many requests with one Idempotency-Key', async () => {
      const source = await create();
      const key = newTask();
      const post = (body: object = { count: 2 }) => fork(source.id, body, { headers: { 'idempotency-key': key } });
      const answers = await Promise.all(Array.from({ length: 20 }, () => post()));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
      expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
      expect(test.host.vms.size).toBe(3);
      expect(await post({ count: 3 })).toMatchObject(refused('conflict', 409));
    });

    it('twenty at once never overcommit', async () => {
      const source = await create();
      const answers = await Promise.all(Array.from({ length: 20 }, () => fork(source.id)));
      expect(answers.filter(({ status }) => status === 201)).toHaveLength(7);
      expect(answers.filter(({ status }) => status === 503)).toHaveLength(13);
      await expect.poll(async () => (await ids('?state=ready')).length).toBe(7);
      expect(await ids()).toHaveLength(7);
    });

    it('are given up when the client goes away while they start', async () => {
      const source = await create();
      let reached = false;
      test.host.before = async ({ method, path }, response) => {
        if (method !== 'PUT' || !/^\/v1\/vms\/[^/]+$/.test(path)) return;
        reached = true;
        await new Promise((resolve) => response.once('close', resolve));
      };
      const leaving = new AbortController();
      const waiting = fork(source.id, { count: 2 }, { signal: leaving.signal });
      await expect.poll(() => reached).toBe(true);
      leaving.abort();
      await expect(waiting).rejects.toThrow();
      await expect.poll(async () => (await call('GET', '/v1/environments')).body.environments.length).toBe(1);
      await expect.poll(async () => (await ids()).length).toBe(0);
    });
  });

  it('a body of any shape is never our own failure', async () => {
    const { id } = await create();
    const values = [null, -1, 2.5, 1e300, '\0', '\ud800', [[]], { a: null }, true, 'x'.repeat(5_000)];
    const routes = {
      [`/v1/environments/${id}/snapshots`]:
        'comment mode name retention_seconds metadata export_ref layer_key include_memory export',
      '/v1/environments/none?action=fork': 'reuse_snapshot_id comment count',
      '/v1/environments': 'seed_snapshot_id fallback',
    };
    for (const [path, fields] of Object.entries(routes))
      for (const field of fields.split(' '))
        for (const value of values) {
          const answer = await call('POST', path, { [field]: value, ...(field === 'fallback' ? { task_id: '' } : {}) });
          expect(answer.status, `${path} ${field} ${JSON.stringify(value)}`).not.toBe(500);
          if (answer.status === 201) await remove(answer.body.id);
        }
    for (const raw of ['[', '1', '"x"', '[]', 'true', '{"a":', '\u0000'])
      expect((await call('POST', `/v1/environments/${id}/snapshots`, raw)).status).toBe(400);
  }, 120_000);
});
