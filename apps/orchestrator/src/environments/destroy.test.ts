/** Destruction is legal in every state. While it pauses and resumes: pause-resume.test.ts; while it starts: environments.test.ts. */
import type { AppError } from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { loseHost } from '../hosts/lose-host.ts';
import { openScene, type Scene } from '../reconciling/test-replicas.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe.each(engines)('destruction on %s', (engine) => {
  let test: TestOrchestrator;
  let call: TestOrchestrator['call'];
  beforeAll(async () => {
    test = await startTestOrchestrator(engine, { host: { capacity: { cpus: 1 } } });
    call = test.call;
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());

  const state = async (id: string) => (await call('GET', `/v1/environments/${id}`)).body.state;
  const destroyByTwenty = async (id: string) => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => call('DELETE', `/v1/environments/${id}`)));
    const statuses = answers.map(({ status }) => status);
    expect(statuses).toContain(204);
    expect(statuses.filter((status) => status !== 204 && status !== 404)).toEqual([]);
    expect((await call('GET', `/v1/environments/${id}`)).status).toBe(404);
  };

  it('ends one that waits for room, which is never made, and one that drains', async () => {
    expect((await call('POST', '/v1/environments', { task_id: 'first' })).status).toBe(201);
    const waits = { task_id: 'second', queue_timeout_seconds: 60, wait: false };
    expect(await call('POST', '/v1/environments', waits)).toMatchObject({
      status: 202,
      body: { state: 'provisioning' },
    });
    const made = test.host.createdVms;
    await destroyByTwenty('fuse-second');

    const draining = call('POST', '/v1/environments/fuse-first?action=drain');
    await expect.poll(() => state('fuse-first')).toBe('draining');
    let deletions = 0;
    test.host.before = ({ method }) => void (method === 'DELETE' && deletions++);
    await destroyByTwenty('fuse-first');
    test.host.before = () => {};
    await draining;
    expect(deletions).toBe(1);
    expect(test.host.createdVms).toBe(made);
    expect((await call('GET', '/v1/hosts/host-1')).body.allocated).toMatchObject({ vm_count: 0, storage_gb: 0 });
  });
});

describe.each(engines)('destruction on %s', (engine) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await openScene(engine);
  }, 60_000);
  afterAll(() => scene[Symbol.asyncDispose]());

  it('of one whose host cannot be reached is begun, and ends when it is back', async () => {
    const { environments, reconciler } = scene.replica();
    const { uid } = await scene.admit('back', environments);
    await environments.start(uid);
    await scene.host.stop();
    const refusals = await Promise.all(
      Array.from({ length: 20 }, () => environments.destroy(uid).catch((error: AppError) => error.code)),
    );
    expect(new Set(refusals)).toEqual(new Set(['unavailable']));
    expect(await scene.state(uid)).toBe('destroying');
    await scene.host.listen();
    await reconciler.cycle();
    await reconciler.settled();
    expect(await scene.state(uid)).toBe('destroyed');
  });

  it('resolves when its host is declared lost while it is asked', async () => {
    const { environments } = scene.replica();
    const { uid } = await scene.admit('gone', environments);
    await environments.start(uid);
    await scene.host.stop();
    const destroyed = environments.destroy(uid);
    await expect.poll(() => scene.state(uid)).toBe('destroying');
    await scene.db.transaction((tx) => loseHost(tx, 'host-1', 60_000));
    await expect(destroyed).resolves.toEqual({ destroyMs: undefined });
    expect(await scene.state(uid)).toBe('destroyed');
    await scene.host.listen();
  });
});
