import type { Egress, Quotas } from '@fuse/contract';
import { type RawBuilder, sql } from 'kysely';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { engines, openTestDb, type TestDb } from '../../db/test-database.ts';
import { type SchedulableHost, schedule } from '../../scheduling/schedule.ts';
import { leftOver, OVERTAKE_MS, turns } from '../../scheduling/turns.ts';
import { readQueue } from './read-queue.ts';
import { standingOf } from './standing.ts';

const host = (changes: Partial<SchedulableHost> = {}): SchedulableHost => ({
  id: 'local',
  state: 'active',
  reachable: true,
  arch: 'amd64',
  backend: 'qemu',
  labels: {},
  images: ['base'],
  templates: [],
  capacity: { cpus: 8, ram_mb: 16_384, storage_gb: 100, vm_count: 100 },
  used: { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 },
  ...changes,
});

interface Asked {
  tenant: string;
  cpus?: number;
  spec?: object;
  egress?: Egress;
  waitedMs?: number;
}

describe.each(engines)('the queue as it is read on %s', (engine) => {
  let test: TestDb;
  let made = 0;
  beforeAll(async () => {
    test = await openTestDb(engine);
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());
  beforeEach(async () => {
    await sql`truncate environments, runs, reservations, snapshots cascade`.execute(test.db.query);
    await sql`delete from tenants where id <> 'default'`.execute(test.db.query);
  });

  const tenant = async (id: string, quotas: Quotas = {}, servedAt?: Date) => {
    await sql`insert into tenants (id, quotas, queue_served_at) values (${id}, ${JSON.stringify(quotas)}::jsonb, ${servedAt ?? null})`.execute(
      test.db.query,
    );
  };
  const insert = async (
    { tenant, cpus = 1, spec = {}, egress = 'none', waitedMs = 0 }: Asked,
    deadline: RawBuilder<Date | null>,
  ) => {
    const id = `q${String(++made).padStart(4, '0')}`;
    await sql`insert into environments
      (id, task_id, vm_id, tenant_id, state, image, spec, cpus, ram_mb, storage_gb, env, network, created_at, queue_deadline)
      values (${id}, ${id}, ${id}, ${tenant}, 'provisioning', 'base', ${JSON.stringify(spec)}::jsonb, ${cpus}, 512, 2, '{}',
        ${JSON.stringify({ egress, allow: [], deny: [] })}::jsonb,
        now() - ${waitedMs}::float8 * interval '1 millisecond', ${deadline})`.execute(test.db.query);
    return id;
  };
  const waits = (asked: Asked) => insert(asked, sql`now() + interval '1 hour'`);
  const runs = async (asked: Asked) => {
    const id = await insert(asked, sql`null`);
    await sql`insert into reservations select uid, 'local', tenant_id, cpus, ram_mb, storage_gb, false from environments where id = ${id}`.execute(
      test.db.query,
    );
  };
  const queueOn = async (hosts: SchedulableHost[]) => {
    const queue = await readQueue(test.db.query, { withRuns: true, hosts });
    return { ...queue, ...(await standingOf(test.db.query, queue.waiting)) };
  };
  const idOf = async (uid: string | undefined) => {
    const { rows } = await sql<{ id: string }>`select id from environments where uid::text = ${uid ?? ''}`.execute(
      test.db.query,
    );
    return rows[0]?.id;
  };
  const next = async (hosts: SchedulableHost[]) =>
    idOf([...turns(await queueOn(hosts), hosts, 'spread')][0]?.waiter.id);
  const newcomer = async (hosts: SchedulableHost[], cpus: number) =>
    schedule(
      { cpus, ram_mb: 512, storage_gb: 2, image: 'base' },
      leftOver(await queueOn(hosts), hosts, 'spread', 'new').hosts,
    ).kind;

  it('lets no tenants that cannot be served hide another, however many', async () => {
    for (let n = 0; n < 60; n += 1) {
      await tenant(`blocked-${n}`, n % 2 === 0 ? { cpus: 0 } : {});
      await waits({ tenant: `blocked-${n}`, ...(n % 2 === 0 ? {} : { spec: { host_id: 'away' } }), waitedMs: 60_000 });
    }
    await tenant('served', {}, new Date());
    const mine = await waits({ tenant: 'served', cpus: 8 });
    const hosts = [host(), host({ id: 'away', state: 'cordoned' })];
    expect(await next(hosts)).toBe(mine);
    expect(await newcomer(hosts, 1)).toBe('no_room');
  }, 60_000);

  it('lets none that cannot be served hide another of its tenant', async () => {
    await tenant('one');
    const blocked = [
      { spec: { host_id: 'away' } },
      { spec: { labels: { disk: 'fast' } } },
      { cpus: 7 },
      { egress: 'internet' as const },
    ];
    for (let n = 0; n < 90; n += 1) await waits({ tenant: 'one', waitedMs: 5_000, ...blocked[n % 4] });
    const mine = await waits({ tenant: 'one', spec: { arch: 'X86_64', labels: { zone: 'a' } } });
    const used = { cpus: 2, ram_mb: 512, storage_gb: 2, vm_count: 1 };
    const away = host({ id: 'away', state: 'cordoned', labels: { disk: 'fast' } });
    expect(await next([host({ used, labels: { zone: 'a' }, noNetwork: 'lacks tproxy' }), away])).toBe(mine);
  }, 60_000);

  it('has what each tenant has on its hosts, which holds up no other’s', async () => {
    for (const id of ['a', 'b']) await tenant(id);
    await waits({ tenant: 'a', cpus: 8, waitedMs: OVERTAKE_MS + 1_000 });
    await runs({ tenant: 'a', cpus: 2 });
    const used = { cpus: 2, ram_mb: 512, storage_gb: 2, vm_count: 1 };
    const queue = await queueOn([host({ used })]);
    expect(queue.own.get('a')?.get('local')).toMatchObject(used);
    expect(await newcomer([host({ used })], 1)).toBe('placed');
    const { own, ...others } = { ...queue, atMs: 0 };
    const kept = leftOver({ ...others, own: new Map() }, [host({ used })], 'spread', 'b').hosts;
    expect(kept).toMatchObject([{ promised: 'all' }]);
  });

  it('has what quotas leave of what is reserved', async () => {
    await tenant('a', { cpus: 4, environments: 5, creates_per_minute: 9 });
    await waits({ tenant: 'a' });
    await runs({ tenant: 'a', cpus: 3 });
    expect((await queueOn([host()])).quotas.get('a')).toEqual({ cpus: 1, environments: 4 });
  });
});
