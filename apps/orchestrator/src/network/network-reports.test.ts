import { canonicalPolicy } from '@fuse/contract';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ensureCluster } from '../db/cluster.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { engines } from '../db/test-database.ts';
import { environmentByUid } from '../environments/environment-store.ts';
import { openScene, type Replica, type Scene } from '../reconciling/test-replicas.ts';
import { testSealer } from '../secrets/test-sealer.ts';

const OPEN = canonicalPolicy({ egress: 'allowlist', allow: ['pypi.org'] });

describe.each(engines)('what hosts report of networks, on %s', (engine) => {
  let scene: Scene;
  let replica: Replica;
  beforeEach(async () => {
    scene = await openScene(engine);
    await ensureCluster(scene.db, testSealer);
    replica = scene.replica();
  }, 60_000);
  afterEach(() => scene[Symbol.asyncDispose]());

  const running = async (taskId: string): Promise<EnvironmentRow> => {
    const { uid } = await scene.admit(taskId, replica.environments, { network: OPEN });
    return replica.environments.start(uid);
  };
  const billed = async () =>
    (await scene.db.query.selectFrom('usage').select('egress_bytes').execute()).reduce(
      (sum, row) => sum + row.egress_bytes,
      0,
    );
  const told = async (uid: string) => {
    const rows = await scene.db.query
      .selectFrom('events')
      .select('data')
      .where('kind', '=', 'network')
      .where('subject_id', '=', uid)
      .orderBy('id')
      .execute();
    return rows.map(({ data }) => data.network as { name?: string; missed?: number }); // as it is written
  };

  it('is recorded once by replicas that look at once, and while it is destroyed', async () => {
    const row = await running('race');
    const { networks } = scene.host;
    const others = engine === 'postgres' ? [scene.replica(), scene.replica()] : [];
    for (let round = 1; round <= 3; round += 1) {
      networks.carry(row.vm_id, { sent: 100, received: 1 });
      networks.refuse(row.vm_id, { name: `h${round}.example.com` });
      await Promise.all([replica, ...others].map((one) => one.reconcile()));
    }
    networks.carry(row.vm_id, { sent: 11, received: 1 });
    networks.refuse(row.vm_id, { name: 'last.example.com' });
    await Promise.all([replica.environments.destroy(row.uid), ...others.map((one) => one.reconcile())]);
    expect(await billed()).toBe(311);
    expect((await told(row.uid)).map(({ name }) => name)).toEqual([
      'h1.example.com',
      'h2.example.com',
      'h3.example.com',
      'last.example.com',
    ]);
    expect((await environmentByUid(scene.db.query, row.uid))?.network_totals).toMatchObject({
      sent_bytes: 311,
      received_bytes: 4,
      refused_count: 4,
      allowed_count: 4,
    });
  });

  it('is recorded of one whose VM died, and of one that never ran', async () => {
    const dead = await running('dead');
    scene.host.networks.carry(dead.vm_id, { sent: 7, received: 0 });
    scene.host.killVm(dead.vm_id);
    await expect.poll(async () => (await replica.reconcile()) && scene.state(dead.uid)).toBe('failed');
    await expect.poll(async () => (await replica.reconcile()) && scene.host.vms.size).toBe(0);
    expect(await billed()).toBe(7);

    const { uid, vm_id } = await scene.admit('early', replica.environments, { network: OPEN });
    scene.host.before = ({ method, path }) => {
      if (method === 'GET' && path === `/v1/vms/${vm_id}`) scene.host.networks.carry(vm_id, { sent: 5, received: 0 });
      if (method === 'PUT' && path.endsWith('/network')) throw new Error('as a host that fails midway');
    };
    scene.host.after = ({ method, path }) => {
      if (method === 'PUT' && path === `/v1/vms/${vm_id}`) throw new Error('as a host that fails midway');
    };
    await expect(replica.environments.start(uid)).rejects.toThrow();
    expect(await billed()).toBe(12);
  });

  it('is told at a bounded rate, with how many are missed', async () => {
    const row = await running('noisy');
    for (let at = 1; at <= 100; at += 1) scene.host.networks.refuse(row.vm_id, { name: `h${at}.example.com` });
    await replica.reconcile();
    const first = await told(row.uid);
    expect(first.map(({ name }) => name)).toEqual(Array.from({ length: 16 }, (_, at) => `h${85 + at}.example.com`));
    expect(first[0]?.missed).toBe(84);
    for (let at = 0; at < 5; at += 1) {
      for (let more = 0; more < 16; more += 1) scene.host.networks.refuse(row.vm_id);
      await replica.reconcile();
    }
    // Two minutes' worth, should the clock have gone over to the next one.
    expect((await told(row.uid)).length).toBeLessThanOrEqual(60);
    expect((await environmentByUid(scene.db.query, row.uid))?.network_totals).toMatchObject({ sent_bytes: 0 });
  });

  it('is put right where policies are others than the row’s: after a host that was away, and a maximum that is another one now', async () => {
    const row = await running('away');
    const policies = () => scene.host.networks.of(row.vm_id)?.policies;
    await scene.host.stop();
    const change = { network: { egress: 'none' as const } };
    await expect(replica.environments.update(row.uid, change)).rejects.toMatchObject({
      code: 'unavailable',
      details: { reason: 'host_unreachable' },
    });
    expect((await environmentByUid(scene.db.query, row.uid))?.network.egress).toBe('none');
    expect(policies()).toEqual([OPEN]);
    await scene.host.listen();
    await replica.reconcile();
    expect(policies()).toMatchObject([{ egress: 'none' }]);

    await using stricter = scene.replica({}, { default: OPEN, max: OPEN });
    await replica.reconciler[Symbol.asyncDispose]();
    await expect.poll(() => stricter.reconcile()).toBe(true);
    expect(policies()).toMatchObject([{ egress: 'none' }, OPEN]);
    await expect(stricter.environments.update(row.uid, { network: { egress: 'internet' } })).rejects.toMatchObject({
      code: 'forbidden',
      details: { ceiling: 'deployment' },
    });
  });

  it('a host that finds no card has the last word: the row is as before', async () => {
    const row = await running('mistaken');
    scene.host.networks.remove(row.vm_id);
    await expect(replica.environments.update(row.uid, { network: { egress: 'internet' } })).rejects.toMatchObject({
      code: 'conflict',
      details: { reason: 'no_network_card' },
    });
    expect(await environmentByUid(scene.db.query, row.uid)).toMatchObject({
      network: { egress: 'allowlist' },
      network_card: false,
    });
  });

  it('a change while it starts is what it runs with', async () => {
    const { uid, vm_id } = await scene.admit('starting', replica.environments, { network: OPEN });
    let changed = false;
    scene.host.before = async ({ method, path }) => {
      if (changed || method !== 'PUT' || path !== `/v1/vms/${vm_id}`) return;
      changed = true;
      await replica.environments.update(uid, { network: { egress: 'none' } });
    };
    const row = await replica.environments.start(uid);
    expect(row).toMatchObject({ state: 'running', network: { egress: 'none' }, network_card: true });
    expect(scene.host.networks.of(vm_id)?.policies).toMatchObject([{ egress: 'none' }]);
  });
});
