import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { quiet } from '../db/test-database.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let test: TestOrchestrator;
beforeAll(async () => {
  test = await startTestOrchestrator('postgres', { config: { shutdownTimeoutMs: 30_000 } });
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());

it('uploads and stdin that stall hold up no stop, are told to come again, and are in the audit log', async () => {
  const { body } = await test.call('POST', '/v1/environments', { task_id: 'stops' });
  const execs = `/v1/environments/${body.id}/execs`;
  expect((await test.call('POST', execs, { id: 'reads', cmd: ['cat'], stdin_open: true })).status).toBe(201);
  const { hostname, port } = new URL(test.orchestrator.url);
  const answers = [
    ['POST', '/v1/files'],
    ['PUT', `/v1/environments/${body.id}/files?path=/stalled`],
    ['POST', `${execs}/reads/stdin?offset=0`],
  ].map(async ([method, path], at) => {
    const socket = connect(Number(port), hostname);
    const head = `Host: x\r\nAuthorization: Bearer ${TEST_TOKEN}\r\nContent-Length: 100\r\nX-Request-ID: stalled-${at}`;
    socket.write(`${method} ${path} HTTP/1.1\r\n${head}\r\n\r\nx`);
    return text(socket);
  });
  await new Promise((resolve) => setTimeout(resolve, 500)); // all have begun
  const beganMs = performance.now();
  await test.orchestrator[Symbol.asyncDispose]();
  expect(performance.now() - beganMs).toBeLessThan(20_000); // of the 30 that it may take
  for (const answer of await Promise.all(answers))
    expect(answer).toMatch(/^HTTP\/1\.1 503 [\s\S]*"code":"unavailable"/);
  await using db = await openDatabase(test.location, quiet);
  const entries = await db.query
    .selectFrom('audit')
    .select(['request_id', 'status', 'code'])
    .where('request_id', 'like', 'stalled-%')
    .orderBy('request_id')
    .execute();
  expect(entries).toEqual([0, 1, 2].map((at) => ({ request_id: `stalled-${at}`, status: 503, code: 'unavailable' })));
}, 60_000);
