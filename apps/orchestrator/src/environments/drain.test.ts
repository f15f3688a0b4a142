import { AppError } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { TEST_TOKEN } from '../test-orchestrator.ts';
import { environmentsOn } from './environments-testing.ts';

describe.each(engines)('draining on %s', (engine) => {
  const scene = environmentsOn(engine, 'drain');
  const { call, create } = scene;

  const act = (id: string, action: string, body?: object) =>
    call('POST', `/v1/environments/${id}?action=${action}`, body);
  const execs = () => [...scene.test.host.vms.values()].flatMap(({ execs: all }) => [...all.values()]);

  it('tells what runs to end, waits for it, and lets nothing new begin', async () => {
    const { id } = await create();
    const events = fetch(`${scene.test.orchestrator.url}/v1/environments/${id}/events`, {
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    const polite = act(id, 'exec', { shell: "trap 'sleep 0.3; echo saved; exit 7' TERM; while :; do sleep 0.1; done" });
    const plain = act(id, 'exec', { cmd: ['sleep', '600'] });
    await expect.poll(() => execs().length).toBe(2);
    const drained = await act(id, 'drain');
    expect(drained).toMatchObject({ status: 200, body: { id, state: 'draining' } });
    expect(drained.body).not.toHaveProperty('error');
    expect(execs().every(({ status }) => status.state === 'exited')).toBe(true);
    expect((await polite).body).toMatchObject({ exit_code: 7, stdout: 'saved\n' });
    expect((await plain).body).toMatchObject({ signal: 'SIGTERM' });
    for (const action of ['exec', 'drain', 'pause', 'resume', 'fork', 'rotate-token'])
      expect(await act(id, action, { cmd: ['true'] }), action).toMatchObject({
        status: 409,
        body: { error: { code: 'conflict', details: { state: 'draining' } } },
      });
    expect((await call('POST', `/v1/environments/${id}/snapshots`)).status).toBe(409);
    expect((await call('GET', '/v1/environments?state=draining')).body.environments).toEqual([drained.body]);
    expect((await call('DELETE', `/v1/environments/${id}`)).status).toBe(204);
    expect(await (await events).text()).toMatch(/"running".*"draining".*"destroying".*"destroyed"/s);
  });

  it('is never idle, and ends with its lifetime', async () => {
    const { id } = await create({ spec: { idle_timeout_seconds: 60 } });
    expect((await act(id, 'drain')).status).toBe(200);
    expect((await call('PATCH', `/v1/environments/${id}`, { expires_in_seconds: 1 })).body).toMatchObject({
      state: 'draining',
    });
    await expect.poll(async () => (await call('GET', `/v1/environments/${id}`)).status, { timeout: 10_000 }).toBe(404);
  });

  it('is draining also when its host cannot tell what runs, and says so', async () => {
    const { id } = await create();
    scene.test.host.before = ({ path }) => {
      if (path.endsWith('/processes')) throw new AppError('internal', 'the guest does not answer');
    };
    const answer = await act(id, 'drain');
    expect(answer).toMatchObject({
      status: 503,
      body: { error: { code: 'unavailable', details: { state: 'draining' } } },
    });
    expect((await call('GET', `/v1/environments/${id}`)).body).toMatchObject({
      state: 'draining',
      error: expect.stringMatching(/^drain of vm .*could not be told to end/),
    });
  });

  it('gives way to its destruction', async () => {
    const { id } = await create();
    const stubborn = act(id, 'exec', { shell: "trap '' TERM; echo up; while :; do sleep 0.1; done" });
    await expect.poll(() => execs()[0]?.bytes.stdout).toBe(3);
    const draining = act(id, 'drain');
    await expect.poll(async () => (await call('GET', `/v1/environments/${id}`)).body.state).toBe('draining');
    expect((await call('DELETE', `/v1/environments/${id}`)).status).toBe(204);
    expect([409, 404]).toContain((await draining).status);
    await stubborn;
  });
});
