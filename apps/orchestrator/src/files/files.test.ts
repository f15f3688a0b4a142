import { createHash, randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { defaultRunConfig } from '../runs/run-config.ts';
import { runToEnd, until, untilEmpty } from '../runs/run-testing.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

const sumOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
const MAX = 40 * 1024 * 1024;

describe.each(engines)('uploads on %s', (engine) => {
  let system: TestOrchestrator;
  beforeAll(async () => {
    system = await startTestOrchestrator(engine, { config: { runs: { ...defaultRunConfig, maxFileBytes: MAX } } });
  }, 60_000);
  afterAll(async () => {
    await untilEmpty(system);
    await system[Symbol.asyncDispose]();
  });
  const upload = (bytes: Uint8Array | ReadableStream, headers: Record<string, string> = {}) =>
    system.call('POST', '/v1/files', undefined, {
      body: bytes as NonNullable<RequestInit['body']>,
      headers,
      ...({ duplex: 'half' } as RequestInit),
    });
  const stored = async () => {
    const { objectStore } = system.config;
    if (objectStore.kind !== 'file') throw new Error('these tests look into a directory');
    return (await readdir(objectStore.directory, { recursive: true, withFileTypes: true }).catch(() => [])).filter(
      (entry) => entry.isFile(),
    ).length;
  };

  it.each([0, 1, 4_096, 16_383, 16_385, 65_535, 65_537, 1_048_576, 33_554_433])(
    'take %i bytes, whatever their type',
    async (size) => {
      const bytes = randomBytes(size);
      const answer = await upload(bytes, { 'content-type': 'text/html' });
      expect(answer.status).toBe(201);
      expect(answer.body).toMatchObject({ size_bytes: size, sha256: sumOf(bytes) });
      const kept = Date.parse(answer.body.expires_at) - Date.parse(answer.body.created_at);
      expect(kept).toBe(86_400_000);
      expect((await system.call('GET', `/v1/files/${answer.body.id}`)).body).toEqual(answer.body);
    },
  );

  it('take a stream without a length', async () => {
    const bytes = randomBytes(300_000);
    const stream = new Blob([bytes]).stream();
    expect((await upload(stream)).body).toMatchObject({ size_bytes: bytes.length, sha256: sumOf(bytes) });
  });

  it('are inputs of runs, as files and as stdin', async () => {
    const bytes = randomBytes(100_000);
    const { id } = (await upload(bytes)).body;
    const run = await runToEnd(system.call, {
      shell: 'sha256sum < data; sha256sum',
      files: [{ path: 'data', file_id: id, mode: '0600' }],
      stdin_file_id: id,
    });
    expect(run.stdout).toBe(`${sumOf(bytes)}  -\n${sumOf(bytes)}  -\n`);
  });

  it('are checked against the sum that came with them', async () => {
    const bytes = Buffer.from('hello');
    const before = await stored();
    const right = createHash('sha256').update(bytes).digest('base64');
    for (const headers of [
      { 'x-fuse-sha256': 'a'.repeat(64) },
      { 'content-digest': `sha-256=:${Buffer.alloc(32).toString('base64')}:` },
    ]) {
      const answer = await upload(bytes, headers);
      expect(answer.status).toBe(400);
      expect(answer.body.error.details.field.toLowerCase()).toBe(Object.keys(headers)[0]);
    }
    expect((await upload(bytes, { 'x-fuse-sha256': 'zz' })).status).toBe(400);
    expect((await upload(bytes, { 'content-digest': 'sha-256=nonsense' })).status).toBe(400);
    expect(await stored()).toBe(before);
    expect((await upload(bytes, { 'x-fuse-sha256': sumOf(bytes).toUpperCase() })).status).toBe(201);
    expect((await upload(bytes, { 'content-digest': `sha-512=:AAAA:, sha-256=:${right}:` })).status).toBe(201);
  });

  it('leave nothing when they are too large', async () => {
    const before = await stored();
    const declared = await upload(Buffer.alloc(MAX + 1));
    expect(declared.status).toBe(413);
    expect(declared.body.error.code).toBe('payload_too_large');
    let sent = 0;
    const endless = new ReadableStream({
      pull: (controller) => {
        sent += 65_536;
        controller.enqueue(new Uint8Array(65_536));
        if (sent > 2 * MAX) controller.close();
      },
    });
    const chunked = await upload(endless).catch(() => undefined); // cut while it sends: it may miss the answer
    if (chunked !== undefined) expect(chunked.status).toBe(413);
    await until(stored, (count) => count === before);
  });

  it('leave nothing when they are cut', async () => {
    const before = await stored();
    const { hostname, port } = new URL(system.orchestrator.url);
    for (const headers of [{ 'content-length': '1000000' }, { 'transfer-encoding': 'chunked' }]) {
      const cut = request({
        hostname,
        port,
        path: '/v1/files',
        method: 'POST',
        headers: { ...headers, authorization: `Bearer ${TEST_TOKEN}` },
      });
      cut.on('error', () => {});
      cut.write(Buffer.alloc(100_000));
      await new Promise((resolve) => setTimeout(resolve, 200));
      cut.destroy();
    }
    await new Promise((resolve) => setTimeout(resolve, 300));
    await until(stored, (count) => count === before);
  });

  it('are refused to a tenant that is disabled, whoever sends them', async () => {
    await system.call('POST', '/v1/tenants', { id: 'disabled' });
    await system.call('PATCH', '/v1/tenants/disabled', { disabled: true });
    const answer = await upload(Buffer.from('x'), { 'fuse-tenant': 'disabled' });
    expect(answer).toMatchObject({ status: 403, body: { error: { code: 'forbidden' } } });
    await system.call('DELETE', '/v1/tenants/disabled');
  });

  it('can be deleted', async () => {
    const { id } = (await upload(Buffer.from('x'))).body;
    const before = await stored();
    expect((await system.call('DELETE', `/v1/files/${id}`)).status).toBe(204);
    expect(await stored()).toBe(before - 1);
    expect((await system.call('GET', `/v1/files/${id}`)).status).toBe(404);
    expect((await system.call('DELETE', `/v1/files/${id}`)).status).toBe(404);
    const answer = await system.call('POST', '/v1/runs', { cmd: ['true'], files: [{ path: 'a', file_id: id }] });
    expect(answer.body.error.details.field).toBe('files.0.file_id');
  });
});
