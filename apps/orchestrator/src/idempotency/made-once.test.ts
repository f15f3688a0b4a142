/** What is made outside of environments, runs and snapshots, which have their own: once for each Idempotency-Key. */
import { readdir } from 'node:fs/promises';
import { temporaryDirectory } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe.each(engines)('an Idempotency-Key on %s', (engine) => {
  let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
  let test: TestOrchestrator;
  beforeAll(async () => {
    directory = await temporaryDirectory();
    test = await startTestOrchestrator(engine, {
      config: { objectStore: { kind: 'file', directory: directory.path } },
    });
  }, 60_000);
  afterAll(async () => {
    await test[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });

  const post = (path: string, key: string, body?: unknown, headers: Record<string, string> = {}) =>
    test.call('POST', path, body, { headers: { 'Idempotency-Key': key, ...headers } });
  const conflict = { status: 409, body: { error: { code: 'conflict', details: { field: 'Idempotency-Key' } } } };

  describe('of an upload', () => {
    const bytes = { 'content-type': 'application/octet-stream' };
    const upload = (key: string, body: string, headers = {}) => post('/v1/files', key, body, { ...bytes, ...headers });
    const stored = async () =>
      (await readdir(directory.path, { recursive: true })).filter((name) => /files\/file[^/]*$/.test(name)).length;

    it('makes one file, and keeps nothing of what was sent besides', async () => {
      const before = await stored();
      const answers = await Promise.all(Array.from({ length: 8 }, () => upload('many', 'the bytes')));
      expect(new Set(answers.map(({ status, body }) => `${status} ${body.id}`)).size).toBe(1);
      const again = await upload('many', 'the bytes');
      expect(again).toMatchObject({ status: 201, body: answers[0]?.body });
      expect(again.headers.get('idempotency-replayed')).toBe('true');
      expect(await stored()).toBe(before + 1);
    });

    it('is of its bytes: others are refused, with and without their sum said before', async () => {
      const first = await upload('sum', 'one');
      const sumOf = (text: string) => ({ 'x-fuse-sha256': text });
      const same = await upload('sum', 'one', sumOf(first.body.sha256));
      expect(same).toMatchObject({ status: 201, body: { id: first.body.id } });
      expect(await upload('sum', 'two')).toMatchObject(conflict);
      expect(await upload('sum', 'two', sumOf('0'.repeat(64)))).toMatchObject(conflict);
      expect(await upload('a key with spaces', 'x')).toMatchObject({ status: 400 });
      expect((await upload('another', 'one')).body.id).not.toBe(first.body.id);
    });
  });

  it('of a host registers it once: what its operator chose meanwhile stays', async () => {
    const host = { id: 'host-2', url: test.host.url, token: test.host.token };
    const first = await post('/v1/hosts', 'host', host);
    expect(first).toMatchObject({ status: 201 });
    await test.call('POST', '/v1/hosts/host-2?action=cordon');
    const again = await post('/v1/hosts', 'host', host);
    expect(again).toMatchObject({ status: 201, body: first.body });
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    expect((await test.call('GET', '/v1/hosts/host-2')).body.state).toBe('cordoned');
    expect(await post('/v1/hosts', 'host', { ...host, region: 'elsewhere' })).toMatchObject(conflict);
    await test.call('DELETE', '/v1/hosts/host-2');
  });

  it('of a join token makes one', async () => {
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => post('/v1/host-join-tokens', 'join', { uses: 2 })),
    );
    expect(new Set(answers.map(({ status, body }) => `${status} ${body.token}`)).size).toBe(1);
    expect(await post('/v1/host-join-tokens', 'join', { uses: 3 })).toMatchObject(conflict);
  });

  it('of a ticket makes one, which opens one socket all the same', async () => {
    const { id } = (await test.call('POST', '/v1/environments', { task_id: 'ticketed' })).body;
    const path = `/v1/environments/${id}/tickets`;
    const [first, again] = [
      await post(path, 'ticket', { for: 'attach' }),
      await post(path, 'ticket', { for: 'attach' }),
    ];
    expect(first.status).toBe(201);
    expect(again).toMatchObject({ status: 201, body: first.body });
    expect(await post(path, 'ticket', { for: 'port', port: 80 })).toMatchObject(conflict);
    await test.call('DELETE', `/v1/environments/${id}`);
  });
});
