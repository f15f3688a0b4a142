/** Hosts over time: silent and back, measured anew, drained, lost. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { defaultIntervals } from '../reconciling/reconciler.ts';
import { defaultRunConfig } from '../runs/run-config.ts';
import { create, untilEnded, untilState } from '../runs/run-testing.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { TestHost } from './test-host.ts';

const reconciling = {
  ...defaultIntervals,
  intervalMs: 50,
  leaseMs: 2_000,
  hostStaleMs: 600,
  missingGraceMs: 300,
  orphanGraceMs: 300,
};

describe.each(engines)('hosts on %s', (engine) => {
  let system: TestOrchestrator;
  let second: TestHost;
  beforeAll(async () => {
    const runs = { ...defaultRunConfig, hostLostAfterMs: 60_000 };
    system = await startTestOrchestrator(engine, { config: { reconciling, runs } });
  }, 60_000);
  afterAll(() => system[Symbol.asyncDispose]());

  const call = (method: string, path: string, body?: unknown) => system.call(method, path, body);
  const host = async (id = 'host-2') => (await call('GET', `/v1/hosts/${id}`)).body;
  const environment = async (task: string) => (await call('GET', `/v1/environments/fuse-${task}`)).body;

  async function until(holds: () => Promise<boolean>): Promise<void> {
    const giveUpAt = performance.now() + 20_000;
    while (!(await holds())) {
      if (performance.now() > giveUpAt) throw new Error('it never came to be');
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }
  const untilHostIs = (state: string) => until(async () => (await host()).state === state);

  async function register(): Promise<void> {
    second = await TestHost.start();
    const body = { id: 'host-2', url: second.url, token: second.token, capacity: { cpus: 6 } };
    expect(await call('POST', '/v1/hosts', body)).toMatchObject({ status: 201, body: { desired_state: 'active' } });
  }
  afterEach(async () => {
    await call('POST', '/v1/hosts/host-2?action=lost&force=true');
    await call('DELETE', '/v1/hosts/host-2');
    await second?.[Symbol.asyncDispose]();
  });

  const start = (task: string, spec: object = {}) =>
    call('POST', '/v1/environments', { task_id: task, spec: { host_id: 'host-2', ...spec } });

  it('that fall silent are unreachable: nothing is placed, nothing destroyed, and they come back as they were', async () => {
    await register();
    expect((await start('silent')).status).toBe(201);
    await second.stop();
    await untilHostIs('unreachable');
    expect(await host()).toMatchObject({ desired_state: 'active', allocated: { vm_count: 1 } });
    expect((await call('GET', '/metrics')).body).toContain('orchestrator_fleet_hosts{state="unreachable"} 1');
    expect(await start('silent-2')).toMatchObject({
      status: 503,
      body: { error: { message: expect.stringContaining('host "host-2" is not reachable') } },
    });
    expect((await environment('silent')).state).toBe('running');
    await second.listen();
    await untilHostIs('active');
    expect((await environment('silent')).state).toBe('running');
    expect([second.vms.size, second.createdVms]).toEqual([1, 1]);
    expect((await start('silent-2')).status).toBe(201);
  });

  it('are measured anew; what was declared stands', async () => {
    await register();
    Object.assign(second.capacity, { cpus: 32, ram_mb: 4_096, storage_gb: 50, free_storage_gb: 7 });
    second.images = [...second.images, { name: 'new', digest: 'sha256:1', size_bytes: 1 }];
    await until(async () => (await host()).capacity.ram_mb === 4_096);
    expect(await host()).toMatchObject({
      capacity: { cpus: 6, ram_mb: 4_096, storage_gb: 50 },
      free_storage_gb: 7,
    });
    expect((await call('GET', '/v1/images')).body.images).toContainEqual(expect.objectContaining({ name: 'new' }));
    expect((await start('too-big', { storage_gb: 8 })).status).toBe(503);
    second.capacity.free_storage_gb = 8;
    const probed = await call('POST', '/v1/hosts/host-2?action=probe');
    expect(probed).toMatchObject({ status: 200, body: { id: 'host-2', free_storage_gb: 8 } });
    expect((await start('fits', { storage_gb: 8 })).status).toBe(201);
    await second.stop();
    expect(await call('POST', '/v1/hosts/host-2?action=probe')).toMatchObject({
      status: 503,
      body: { error: { code: 'unavailable' } },
    });
  });

  it('that drain get nothing new, keep what they have, and take more once they are uncordoned', async () => {
    await register();
    expect((await start('stays')).status).toBe(201);
    expect((await call('POST', '/v1/hosts/host-2?action=drain')).status).toBe(204);
    expect(await host()).toMatchObject({ state: 'draining', desired_state: 'draining' });
    expect(await start('new')).toMatchObject({
      status: 503,
      body: { error: { message: expect.stringContaining('is draining, not active') } },
    });
    expect((await environment('stays')).state).toBe('running');
    expect((await call('POST', '/v1/hosts/host-2?action=uncordon')).status).toBe(204);
    expect((await start('new')).status).toBe(201);
  });

  it('that are declared lost take their environments, runs and snapshots with them, and give their room back', async () => {
    await register();
    expect((await start('lost')).status).toBe(201);
    const taken = await call('POST', '/v1/environments/fuse-lost/snapshots');
    expect(taken.status).toBe(201);
    await call('POST', '/v1/hosts/host-1?action=cordon');
    const run = await create(system.call, { shell: 'sleep 600' });
    await untilState(system.call, run.id, 'running');
    await call('POST', '/v1/hosts/host-1?action=uncordon');
    expect(await call('POST', '/v1/hosts/host-2?action=lost')).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict', message: 'host host-2 is not lost: it answers' } },
    });
    await second.stop();
    expect(await call('POST', '/v1/hosts/host-2?action=lost')).toMatchObject({ status: 204, body: '' });
    expect(await host()).toMatchObject({
      state: 'lost',
      allocated: { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 },
    });
    expect(await untilEnded(system.call, run.id)).toMatchObject({
      state: 'failed',
      error: { code: 'host_lost', message: 'host host-2 was declared lost' },
    });
    expect((await environment('lost')).error.code).toBe('not_found');
    expect((await call('GET', `/v1/snapshots/${taken.body.id}`)).body).toMatchObject({ state: 'error' });
    expect((await start('later')).status).toBe(503);

    // It was not lost after all: what nobody knows any more goes, and only its operator lets it take more.
    expect(second.vms.size).toBe(2);
    await second.listen();
    await until(async () => second.vms.size === 0);
    expect(await host()).toMatchObject({ state: 'lost' });
    expect((await call('POST', '/v1/hosts/host-2?action=uncordon')).status).toBe(204);
    expect(await host()).toMatchObject({ state: 'active' });
    expect((await start('later')).status).toBe(201);
    expect(second.vms.size).toBe(1);
  });

  it('are lost when they are forced to be, whatever they answer', async () => {
    await register();
    expect((await start('forced')).status).toBe(201);
    expect((await call('POST', '/v1/hosts/host-2?action=lost&force=maybe')).status).toBe(400);
    expect((await call('POST', '/v1/hosts/host-2?action=lost&force=true')).status).toBe(204);
    expect((await call('DELETE', '/v1/hosts/host-2')).status).toBe(204);
    expect((await call('POST', '/v1/hosts/host-2?action=lost')).status).toBe(404);
  });

  it('need not exist for an orchestrator to be ready; of those that do, one must be reachable', async () => {
    await register();
    expect((await call('GET', '/ready')).status).toBe(200);
    await system.host.stop();
    await second.stop();
    await until(async () => (await call('GET', '/ready')).status === 503);
    expect((await call('GET', '/ready')).body.checks).toMatchObject({ fleet: 'none of 2 hosts is reachable' });
    for (const id of ['host-1', 'host-2']) {
      await call('POST', `/v1/hosts/${id}?action=lost`);
      expect((await call('DELETE', `/v1/hosts/${id}`)).status).toBe(204);
    }
    expect(await call('GET', '/ready')).toMatchObject({ status: 200, body: { checks: { fleet: 'ok' } } });
  });
});
