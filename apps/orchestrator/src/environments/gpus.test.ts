/** Environments with GPUs through the API: which they get, when they give them back, and what cannot be done with them. */
import { AppError, type Host } from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { environmentsOn } from './environments-testing.ts';

const devices = ['0000:65:00.0', '0000:b3:00.0'];
const capacity = {
  gpus: 2,
  gpu_kind: 'NVIDIA A100',
  gpu_devices: devices.map((pci_bus_id, n) => ({ pci_bus_id, model: 'NVIDIA A100', iommu_group: `${n}` })),
  mig_instances: ['mig-1', 'mig-2'].map((uuid) => ({ uuid, profile: '1g.10gb' })),
};

describe.each(engines)('environments with gpus on %s', (engine) => {
  const environments = environmentsOn(engine, 'gpu', { host: { capacity } });
  const { create, newTask } = environments;
  const call: typeof environments.call = (...request) => environments.call(...request);
  const post = (body: object) => call('POST', '/v1/environments', { task_id: newTask(), ...body });
  const host = async (): Promise<Host> => (await call('GET', '/v1/hosts/host-1')).body;
  const allocated = async () => (await host()).allocated;
  const nothing = { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 };
  const given = () => [...environments.test.host.vms.values()].flatMap(({ gpus }) => gpus?.devices ?? []).sort();

  it('get devices of their own, which the host shows, and give them back once whatever ends them', async () => {
    expect((await host()).capacity).toMatchObject(capacity);
    const one = await create({ spec: { gpus: 1, gpu_kind: 'a100' } });
    expect(one.spec).toMatchObject({ gpus: 1, gpu_kind: 'a100' });
    expect(await allocated()).toMatchObject({ gpus: 1, vm_count: 1 });
    await create({ spec: { gpus: 1 } });
    expect(given()).toEqual(devices);
    const full = await post({ spec: { gpus: 1 } });
    expect(full).toMatchObject({ status: 503, body: { error: { code: 'unavailable' } } });
    expect(full.body.error.message).toMatch(/\+ 1 gpu, no eligible host fits$/);
    expect((await call('DELETE', `/v1/environments/${one.id}`)).status).toBe(204);
    expect(await allocated()).toMatchObject({ gpus: 1, vm_count: 1 });
    await create({ spec: { gpus: 1 } });
    expect(given()).toEqual(devices);
    expect(await allocated()).toMatchObject({ gpus: 2, vm_count: 2 });
  });

  it('get instances of a profile beside whole ones', async () => {
    const { id, spec } = await create({ spec: { gpus: 1, gpu_profile: '1G.10GB' } });
    expect(spec.gpu_profile).toBe('1g.10gb');
    expect(await allocated()).toMatchObject({ mig_profiles: { '1g.10gb': 1 }, mig_instance_uuids: ['mig-1'] });
    await create({ spec: { gpus: 1, gpu_profile: '1g.10gb' } });
    await create({ spec: { gpus: 2 } });
    expect(given()).toEqual([...devices, 'mig-1', 'mig-2']);
    expect((await post({ spec: { gpus: 1, gpu_profile: '1g.10gb' } })).status).toBe(503);
    await call('DELETE', `/v1/environments/${id}`);
    expect((await allocated()).mig_instance_uuids).toEqual(['mig-2']);
  });

  it('give them back when their host cannot start them', async () => {
    environments.test.host.before = ({ method, path }) => {
      if (method === 'PUT' && path.startsWith('/v1/vms/')) throw new AppError('unavailable', 'GPU x is not here');
    };
    const refused = await post({ spec: { gpus: 2 } });
    expect(refused.status).toBe(503);
    expect(refused.body.error.message).toMatch(/^provision vm .*: GPU x is not here$/);
    environments.test.host.before = () => {};
    expect(await allocated()).toEqual(nothing);
    await create({ spec: { gpus: 2 } });
  });

  it('wait for them like for any room', async () => {
    const { id } = await create({ spec: { gpus: 2 } });
    const waiting = post({ spec: { gpus: 2 }, queue_timeout_seconds: 60 });
    await expect
      .poll(async () => (await call('GET', '/v1/environments?state=provisioning')).body.environments.length)
      .toBe(1);
    await create(); // which needs none
    expect(await allocated()).toMatchObject({ gpus: 2 });
    await call('DELETE', `/v1/environments/${id}`);
    expect((await waiting).status).toBe(201);
    expect(given()).toEqual(devices);
  });

  it('of many that are asked for at once no device is given twice', async () => {
    const answers = await Promise.all(Array.from({ length: 6 }, () => post({ spec: { gpus: 1 } })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 201, 503, 503, 503, 503]);
    expect(given()).toEqual(devices);
    expect(await allocated()).toMatchObject({ gpus: 2, vm_count: 2 });
  });

  it('cannot be paused, snapshotted or forked, nor told to be by themselves', async () => {
    const { id } = await create({ spec: { gpus: 1 } });
    for (const path of ['?action=pause', '?action=fork', '/snapshots'])
      expect(await call('POST', `/v1/environments/${id}${path}`, {})).toMatchObject({
        status: 409,
        body: {
          error: { code: 'conflict', message: expect.stringContaining('has gpus'), details: { reason: 'gpus' } },
        },
      });
    expect((await call('GET', `/v1/environments/${id}`)).body.state).toBe('running');
    for (const field of [{ idle_action: 'pause' }, { checkpoint_interval_seconds: 60 }]) {
      const refused = { status: 400, body: { error: { details: { field: Object.keys(field)[0] } } } };
      expect(await post({ spec: { gpus: 1 }, ...field })).toMatchObject(refused);
      expect(await call('PATCH', `/v1/environments/${id}`, field)).toMatchObject(refused);
    }
  });

  it('are asked for by number: a kind or a profile alone is refused, and starts nothing', async () => {
    for (const field of ['gpu_kind', 'gpu_profile'])
      for (const gpus of [undefined, null, 0])
        expect(await post({ spec: { gpus, [field]: '1g.10gb' } })).toMatchObject({
          status: 400,
          body: {
            error: {
              code: 'invalid_argument',
              message: `spec.${field}: needs spec.gpus`,
              details: { field: `spec.${field}` },
              hint: expect.stringMatching(/^Set "gpus"/),
            },
          },
        });
    expect(await allocated()).toEqual(nothing);
    await create({ spec: { gpus: 0, gpu_kind: '', gpu_profile: '' } });
  });

  it('start from the disk of a snapshot alone', async () => {
    const { id } = await create();
    const { body: snapshot } = await call('POST', `/v1/environments/${id}/snapshots`, {});
    const seed = { seed_snapshot_id: snapshot.id, spec: { gpus: 1 } };
    expect(await post(seed)).toMatchObject({ status: 409, body: { error: { hint: expect.stringContaining('disk') } } });
    await create({ ...seed, fallback: 'disk' });
    expect(given()).toEqual([devices[0]]);
    await call('DELETE', `/v1/snapshots/${snapshot.id}`);
  });

  it('follow what the host says, but for what was declared', async () => {
    const { host: fake } = environments.test;
    const probed = async () => {
      expect((await call('POST', '/v1/hosts/host-1?action=probe')).status).toBe(200);
      return (await host()).capacity;
    };
    fake.capacity.gpus = 1;
    fake.capacity.gpu_devices = capacity.gpu_devices.slice(1);
    expect(await probed()).toMatchObject({ gpus: 1, gpu_devices: [{ pci_bus_id: devices[1] }] });
    const registration = { id: 'host-1', url: fake.url, token: fake.token, backend: 'qemu' };
    const declared = { gpus: 3, gpu_kind: 'h100', mig_profiles: { '2G.20GB': 1 } };
    const { status, body } = await call('POST', '/v1/hosts', { ...registration, capacity: declared });
    expect(status).toBe(201);
    expect(body.warnings).toEqual([
      'declared gpus (3) exceeds probed host capacity (1)',
      'declared gpu_kind (h100) differs from probed host gpu_kind (NVIDIA A100)',
    ]);
    fake.capacity.gpus = 2;
    fake.capacity.gpu_devices = capacity.gpu_devices;
    expect(await probed()).toMatchObject({
      gpus: 3,
      gpu_kind: 'h100',
      mig_profiles: { '2g.20gb': 1 },
      gpu_devices: [{}, {}],
    });
    expect((await host()).allocated).toEqual(nothing);
  });
});
