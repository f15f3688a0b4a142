import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { callerOf, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { untilEmpty } from './run-testing.ts';

describe.each(engines)('an Idempotency-Key on %s', (engine) => {
  let system: TestOrchestrator;
  beforeAll(async () => {
    system = await startTestOrchestrator(engine, { host: { capacity: { cpus: 64, ram_mb: 65_536 } } });
  }, 60_000);
  afterAll(async () => {
    await untilEmpty(system);
    await system[Symbol.asyncDispose]();
  });

  const post = (key: string, body: unknown, call = system.call) =>
    call('POST', '/v1/runs', body, { headers: { 'idempotency-key': key } });

  it('makes one run of 50 requests at once, and answers all of them alike', async () => {
    const body = { shell: 'cat in', files: [{ path: 'in', content: 'x' }] };
    const before = system.host.createdVms;
    const answers = await Promise.all(Array.from({ length: 50 }, () => post('fifty', body)));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 202));
    for (const { body: run } of answers) expect(run).toEqual(answers[0]?.body);
    expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === 'true').length).toBe(49);
    const { id } = answers[0]?.body ?? {};
    const ended = await post('fifty-wait', { shell: 'true', wait: true });
    expect(ended.status).toBe(200);
    await untilEmpty(system);
    expect(system.host.started.get(`${id}-exec`)).toBe(1);
    expect(system.host.createdVms).toBe(before + 2);
  });

  it('answers a repeated wait with the same end', async () => {
    const body = { shell: 'echo x', wait: true };
    const answers = await Promise.all(Array.from({ length: 5 }, () => post('waiting', body)));
    for (const { status, body: run } of answers) {
      expect(status).toBe(200);
      expect(run).toEqual(answers[0]?.body);
    }
    expect((await post('waiting', body)).body).toEqual(answers[0]?.body);
    expect(system.host.started.get(`${answers[0]?.body.id}-exec`)).toBe(1);
  });

  it('refuses another body', async () => {
    expect((await post('other', { cmd: ['true'] })).status).toBe(202);
    const answer = await post('other', { cmd: ['false'] });
    expect(answer.status).toBe(409);
    expect(answer.body.error).toMatchObject({ code: 'conflict', details: { field: 'Idempotency-Key' } });
    expect((await post('other', '{ "cmd" : [ "true" ] }')).status).toBe(202);
  });

  it('remembers nothing of a refusal', async () => {
    const body = { cmd: ['true'], limits: { cpus: 200 } };
    expect((await post('refused', body)).status).toBe(503);
    expect((await post('refused', { cmd: ['true'] })).status).toBe(202);
  });

  it.each(['', ' ', 'a b', 'ü', 'x'.repeat(256)])('is not %j', async (key) => {
    const answer = await post(encodeURI(key) === key ? key : 'a b', { cmd: ['true'] });
    expect(answer.status).toBe(400);
    expect(answer.body.error.details.field).toBe('Idempotency-Key');
  });

  if (engine === 'postgres')
    it('survives a restart, and holds for every process', async () => {
      const body = { cmd: ['true'] };
      const second = await system.another();
      const first = await post(
        'restart',
        body,
        callerOf(() => second.url),
      );
      await second[Symbol.asyncDispose]();
      const repeated = await post('restart', body);
      expect(repeated.body).toEqual(first.body);
      expect(repeated.headers.get('idempotency-replayed')).toBe('true');
    });
});
