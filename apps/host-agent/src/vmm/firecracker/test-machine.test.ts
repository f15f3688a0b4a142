/** That what the driver is tested against refuses what Firecracker refuses: otherwise it would show nothing. */
import { beforeEach, describe, expect, it } from 'vitest';
import { type ApiCall, bootCalls, loadCalls, pauseCall, resumeCall, snapshotCall } from './machine-configuration.ts';
import { ApiRules, apiDescriptionIsThere } from './test-api-rules.ts';
import { FakeMachine } from './test-machine.ts';

const boot = bootCalls({
  shape: { cpus: 1, memoryMiB: 128 },
  network: { tapName: 'tap0', mac: '02:00:00:00:00:01' },
  rates: {},
  hasConsole: true,
});
const load = loadCalls({ network: undefined, advanceClock: true });

describe('the states of a machine', () => {
  let machine: FakeMachine;
  beforeEach(() => {
    machine = new FakeMachine(async () => undefined);
  });
  const call = async (calls: readonly ApiCall[]) => {
    for (const { method, path, body } of calls) await machine.handle(method, path, body);
  };
  const named = (path: string) => boot.filter((each) => each.path === path);

  it('take a boot, pauses and a snapshot', async () => {
    await call([...boot, pauseCall, pauseCall, snapshotCall('Full'), resumeCall, resumeCall]);
    expect(machine.state).toBe('Running');
  });

  it('take a load, and snapshots of what changed since', async () => {
    await call([...load, snapshotCall('Diff'), resumeCall]);
    expect(machine.state).toBe('Running');
  });

  it.each<[string, readonly ApiCall[], RegExp]>([
    ['a start without a kernel', named('/actions'), /without kernel configuration/],
    ['a pause before the start', [pauseCall], /not supported before starting/],
    ['a snapshot before the start', [snapshotCall('Full')], /not supported before starting/],
    ['a snapshot of what runs', [...boot, snapshotCall('Full')], /unavailable while running/],
    ['a drive after the start', [...boot, ...named('/drives/image')], /not supported after starting/],
    ['a second start', [...boot, ...named('/actions')], /not supported after starting/],
    ['a load after the start', [...boot, ...load.slice(-1)], /not supported after starting/],
    [
      'a load after anything of a boot',
      [...named('/machine-config'), ...load],
      /not allowed after configuring boot-specific/,
    ],
    ['metrics twice', [...named('/metrics'), ...named('/metrics')], /already initialized/],
    ['two devices of one kind', [...named('/vsock'), ...named('/vsock')], /Address in use/],
    [
      'rates of a drive that is not there',
      [...load, { method: 'PATCH', path: '/drives/other', body: {} }],
      /Cannot find device other/,
    ],
  ])('refuse %s', async (_what, calls, reason) => {
    await expect(call(calls)).rejects.toThrow(reason);
  });
});

describe.skipIf(!apiDescriptionIsThere)('the description of the API', () => {
  const rules = apiDescriptionIsThere ? new ApiRules() : undefined;

  it('has nothing against what the driver sends', () => {
    for (const { method, path, body } of [...boot, ...load, pauseCall, snapshotCall('Diff')])
      expect(rules?.fault(method, path, body), path).toBeUndefined();
  });

  it.each<[string, string, string, unknown]>([
    ['another path', 'PUT', '/machine', {}],
    ['another method', 'DELETE', '/vsock', undefined],
    ['a body that is missing', 'PUT', '/vsock', undefined],
    ['a body that is none of its business', 'GET', '/', {}],
    ['a field that is missing', 'PUT', '/vsock', { guest_cid: 3 }],
    ['one that does not exist', 'PUT', '/vsock', { guest_cid: 3, uds_path: '/v', color: 'red' }],
    ['one of another type', 'PUT', '/machine-config', { vcpu_count: '1', mem_size_mib: 128 }],
    ['one out of its bounds', 'PUT', '/vsock', { guest_cid: 2, uds_path: '/v' }],
    ['a word that is none of those', 'PATCH', '/vm', { state: 'Stopped' }],
    ['an id that is not that of the path', 'PATCH', '/drives/one', { drive_id: 'two' }],
    ['a nested field', 'PUT', '/entropy', { rate_limiter: { bandwidth: { size: 1 } } }],
  ])('has something against %s', (_what, method, path, body) => {
    expect(rules?.fault(method, path, body)).toBeDefined();
  });
});
