import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await TestHost.open();
});
afterAll(() => host[Symbol.asyncDispose]());

const healthOf = async (id: string) => (await host.list()).vms.find((vm) => vm.id === id)?.health;
const becomes = (id: string, state: string) =>
  expect.poll(async () => (await healthOf(id))?.state, { timeout: 30_000, interval: 200 }).toBe(state);

describe('the healthcheck of a VM', () => {
  it('is told in the list, survives the host agent, a pause, a restore and is in a fork', async () => {
    const { id } = await host.create();
    expect(await healthOf(id)).toBeUndefined();
    await host.call('PUT', `/v1/vms/${id}/healthcheck`, {
      exec: ['test', '-e', '/run/well'],
      interval_seconds: 1,
      timeout_seconds: 1,
      retries: 2,
    });
    expect(await healthOf(id)).toMatchObject({ state: 'starting' });
    await becomes(id, 'failing');
    const failing = await healthOf(id);
    expect(failing?.failures).toBeGreaterThanOrEqual(2);
    expect(Math.abs(Date.now() - Date.parse(failing?.since ?? ''))).toBeLessThan(60_000);
    const snapshot = await host.snapshot(id);
    await host.shell(id, 'touch /run/well');
    await becomes(id, 'passing');

    await host.stop();
    await host.start();
    await becomes(id, 'passing');

    await host.pause(id);
    await host.resume(id);
    await becomes(id, 'passing');

    const fork = await host.fork(snapshot.id);
    await becomes(fork.id, 'failing');
    await host.shell(fork.id, 'touch /run/well');
    await becomes(fork.id, 'passing');
    await host.destroy(fork.id);

    await host.restore(id, { snapshot_id: snapshot.id, restore_id: 'r1' });
    await becomes(id, 'failing');
    await host.destroy(id);
    await host.deleteSnapshot(snapshot.id);
  }, 180_000);

  it('is refused when it is none, and of a VM that does not run', async () => {
    const { id } = await host.create();
    const put = (body: unknown) => host.call('PUT', `/v1/vms/${id}/healthcheck`, body);
    await expect(put({})).rejects.toMatchObject({ status: 400 });
    await expect(put({ exec: ['true'], http: { port: 80 } })).rejects.toMatchObject({ status: 400 });
    await host.pause(id);
    await expect(put({ exec: ['true'] })).rejects.toMatchObject({ status: 409 });
    await host.destroy(id);
  });
});
