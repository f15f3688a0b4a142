import { FrameClient } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe.each(engines)('tickets on %s', (engine) => {
  let scene: TestOrchestrator;
  beforeAll(async () => {
    scene = await startTestOrchestrator(engine);
    for (const task_id of ['one', 'two']) await scene.call('POST', '/v1/environments', { task_id });
    await scene.call('POST', '/v1/environments/fuse-one/execs', { id: 'sleeper', cmd: ['sleep', '600'] });
  }, 60_000);
  afterAll(() => scene?.[Symbol.asyncDispose]());

  const issue = async (body: object): Promise<string> => {
    const answer = await scene.call('POST', '/v1/environments/fuse-one/tickets', body);
    expect(answer.status).toBe(201);
    return answer.body.ticket;
  };
  const open = async (path: string, ticket: string) => {
    const glue = path.includes('?') ? '&' : '?';
    const client = await FrameClient.webSocket({ url: scene.orchestrator.url }, `${path}${glue}ticket=${ticket}`);
    client.cut();
  };
  const attach = '/v1/environments/fuse-one/attach?tty=1&cmd=cat';

  it('open one WebSocket, once, also when two try at the same time', async () => {
    const ticket = await issue({ for: 'attach' });
    const tries = await Promise.allSettled([open(attach, ticket), open(attach, ticket), open(attach, ticket)]);
    expect(tries.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
    await expect(open(attach, ticket)).rejects.toThrow('401');
  });

  it('open what they were made for and nothing else, and are spent by the attempt', async () => {
    const exec = '/v1/environments/fuse-one/execs/sleeper/connect';
    await open(exec, await issue({ for: 'exec', session: 'sleeper' }));
    await open(`${attach}&session=mine`, await issue({ for: 'attach', session: 'mine' }));
    for (const [purpose, path] of [
      [{ for: 'exec', session: 'sleeper' }, attach],
      [{ for: 'attach' }, exec],
      [{ for: 'exec', session: 'other' }, exec],
      [{ for: 'attach', session: 'mine' }, attach],
      [{ for: 'attach', session: 'mine' }, `${attach}&session=other`],
      [{ for: 'port', port: 80 }, '/v1/environments/fuse-one/ports/81/connect'],
      [{ for: 'attach' }, '/v1/environments/fuse-two/attach?tty=1&cmd=cat'],
    ] as const) {
      const ticket = await issue(purpose);
      await expect(open(path, ticket)).rejects.toThrow('401');
      await expect(open(attach, ticket)).rejects.toThrow('401');
    }
  });

  it('expire, and are swept then', async () => {
    const ticket = await issue({ for: 'attach', ttl_seconds: 1 });
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    await expect(open(attach, ticket)).rejects.toThrow('401');
  });

  it('say until when, and are refused by name', async () => {
    const before = Date.now();
    const { body } = await scene.call('POST', '/v1/environments/fuse-one/tickets', { for: 'attach', ttl_seconds: 300 });
    expect(body.ticket).toMatch(/^ticket_[\w-]{43}$/);
    expect(Date.parse(body.expires_at)).toBeGreaterThan(before + 200_000);
    for (const [request, field] of [
      [{}, 'for'],
      [{ for: 'exec' }, 'session'],
      [{ for: 'port' }, 'port'],
      [{ for: 'port', port: 0 }, 'port'],
      [{ for: 'attach', ttl_seconds: 301 }, 'ttl_seconds'],
    ] as const)
      expect(await scene.call('POST', '/v1/environments/fuse-one/tickets', request)).toMatchObject({
        status: 400,
        body: { error: { details: { field } } },
      });
    expect((await scene.call('POST', '/v1/environments/none/tickets', { for: 'attach' })).status).toBe(404);
    const stranger = await scene.call(
      'POST',
      '/v1/environments/fuse-one/tickets',
      { for: 'attach' },
      {
        headers: { authorization: 'Bearer nobody' },
      },
    );
    expect(stranger.status).toBe(401);
  });
});
