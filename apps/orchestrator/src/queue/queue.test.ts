import { TENANT_HEADER } from '@fuse/contract';
import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { engines, quiet } from '../db/test-database.ts';
import { create, until, untilEmpty, untilEnded } from '../runs/run-testing.ts';
import { type Answer, startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe.each(engines)('environments that wait for room on %s', (engine) => {
  let system: TestOrchestrator;
  let tasks = 0;
  beforeAll(async () => {
    system = await startTestOrchestrator(engine, { host: { capacity: { cpus: 2, ram_mb: 4_096, vm_count: 2 } } });
  }, 60_000);
  afterAll(() => system[Symbol.asyncDispose]());
  afterEach(() => untilEmpty(system));

  const newTask = () => `task-${++tasks}`;
  const post = (body: object, init: RequestInit = {}, task_id = newTask()) =>
    system.call('POST', '/v1/environments', { task_id, ...body }, init);
  const get = (id: string) => system.call('GET', `/v1/environments/${id}`);
  const destroy = async (...ids: string[]) => {
    for (const id of ids) expect((await system.call('DELETE', `/v1/environments/${id}`)).status).toBe(204);
  };
  const occupant = async (cpus = 2): Promise<string> => {
    const { status, body } = await post({ spec: { cpus } });
    expect(status).toBe(201);
    return body.id;
  };
  const untilQueued = (id: string) =>
    until(
      () => get(id),
      ({ body }) => body.queued !== undefined,
    );
  const untilRunning = (id: string, init: RequestInit = {}) =>
    until(
      () => system.call('GET', `/v1/environments/${id}`, undefined, init),
      ({ body }) => body.state === 'running',
    );

  it('get it when others leave; what they wait for can be read, and then why they are where they are', async () => {
    const first = await occupant();
    const asked = post({ spec: { cpus: 1 }, queue_timeout_seconds: 60 }, {}, 'patient');
    const { body: seen } = await untilQueued('fuse-patient');
    expect(seen).toMatchObject({
      state: 'provisioning',
      queued: { reason: 'no host has sufficient capacity: need 1CPU/512MB/2GB, no eligible host fits' },
    });
    expect(seen.host_id).toBeUndefined();
    expect(seen.expires_at).toBeUndefined();
    expect((await system.call('GET', '/v1/environments/fuse-patient/placement')).body).toMatchObject({
      reason: expect.stringContaining('no host has sufficient capacity'),
      hosts: [{ host_id: 'host-1', reason: 'does not fit 1CPU/512MB/2GB' }],
    });
    expect(system.host.vms.size).toBe(1);
    await destroy(first);
    const answer = await asked;
    expect(answer.status).toBe(201);
    expect(answer.body).toMatchObject({ state: 'running', host_id: 'host-1', expires_at: expect.any(String) });
    expect(answer.body.queued).toBeUndefined();
    const { body: placement } = await system.call('GET', '/v1/environments/fuse-patient/placement');
    expect(placement).toMatchObject({ host_id: 'host-1', hosts: [{ host_id: 'host-1', score: 24_096 }] });
    expect(placement.reason).toBeUndefined();
    await destroy(answer.body.id);
  });

  it('are answered 202 at once without waiting, and start by themselves', async () => {
    const first = await occupant();
    const answer = await post({ queue_timeout_seconds: 60, wait: false, startup_script: 'true' });
    expect(answer.status).toBe(202);
    expect(answer.body).toMatchObject({ state: 'provisioning', queued: { until: expect.any(String) } });
    await destroy(first);
    await untilRunning(answer.body.id);
    await destroy(answer.body.id);
  });

  it('fail when there is none in time: 503 with Retry-After for whoever waits, readable afterwards', async () => {
    const first = await occupant();
    const answer = await post({ queue_timeout_seconds: 1 }, {}, 'late');
    expect(answer.status).toBe(503);
    expect(answer.headers.get('retry-after')).toMatch(/^\d+$/);
    expect(answer.body.error).toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(/^no room within queue_timeout_seconds \(1 s\): no host has sufficient capacity/),
      details: { reason: 'no_room', hosts: 'host-1 does not fit 1CPU/512MB/2GB' },
    });
    expect((await get('fuse-late')).status).toBe(404);
    expect((await system.call('GET', '/v1/environments/fuse-late/placement')).body).toMatchObject({
      hosts: [{ host_id: 'host-1', reason: 'does not fit 1CPU/512MB/2GB' }],
    });
    await destroy(first);
  });

  it('can be destroyed at once, which whoever waits is told', async () => {
    const first = await occupant();
    const asked = post({ queue_timeout_seconds: 60 }, {}, 'unwanted');
    await untilQueued('fuse-unwanted');
    await destroy('fuse-unwanted');
    expect(await asked).toMatchObject({ status: 409, body: { error: { code: 'conflict' } } });
    await destroy(first);
    expect((await get('fuse-unwanted')).status).toBe(404);
  });

  it('give their place up when the client goes away', async () => {
    const first = await occupant();
    const client = new AbortController();
    const asked = post({ queue_timeout_seconds: 60 }, { signal: client.signal }, 'fickle').catch(() => 'gone');
    await untilQueued('fuse-fickle');
    client.abort();
    expect(await asked).toBe('gone');
    await until(
      () => get('fuse-fickle'),
      ({ status }) => status === 404,
    );
    await destroy(first);
  });

  it('keep one Idempotency-Key one environment, also while it waits', async () => {
    const first = await occupant();
    const init = { headers: { 'Idempotency-Key': `${engine}-waits` } };
    const asked = [1, 2].map(() => post({ queue_timeout_seconds: 60 }, init, 'once'));
    await untilQueued('fuse-once');
    await destroy(first);
    const answers = await Promise.all(asked);
    expect(answers.map(({ status }) => status)).toEqual([201, 201]);
    expect(system.host.vms.size).toBe(1);
    await destroy('fuse-once');
  });

  it('are never made of what no host could ever take', async () => {
    for (const [spec, status, message] of [
      [{ cpus: 64 }, 503, /^no host has sufficient capacity/],
      [{ labels: { disk: 'nvme' } }, 503, /matched none of 1 schedulable hosts$/],
      [{ gpus: 1, gpu_kind: 'a100' }, 503, /\+ 1 gpu of kind "a100", and none of 1 schedulable hosts serves gpus$/],
      [{ host_id: 'host-9' }, 404, /^spec.host_id: host "host-9" is not registered$/],
    ] as const) {
      const answer = await post({ spec, queue_timeout_seconds: 60 });
      expect(answer.status).toBe(status);
      expect(answer.body.error.message).toMatch(message);
    }
    expect((await system.call('GET', '/v1/environments')).body.environments).toEqual([]);
  });

  it('wait in one line with runs', async () => {
    const first = await occupant();
    const { body: one } = await post({ spec: { cpus: 2 }, queue_timeout_seconds: 60, wait: false });
    const run = await create(system.call, { cmd: ['true'], limits: { cpus: 2 } });
    const { body: other } = await post({ spec: { cpus: 2 }, queue_timeout_seconds: 60, wait: false });
    await destroy(first);
    await untilRunning(one.id);
    expect((await system.call('GET', `/v1/runs/${run.id}`)).body.state).toBe('queued');
    await destroy(one.id);
    expect((await untilEnded(system.call, run.id)).state).toBe('succeeded');
    await untilRunning(other.id);
    await destroy(other.id);
  });

  it('are measured once each when they get their room, whoever waits with them, runs and starts from snapshots too', async () => {
    const metric = 'orchestrator_environment_create_phase_seconds_count{phase="queue"} ';
    const measured = async () => {
      const { body } = await system.call('GET', '/metrics');
      return Number(
        body
          .split('\n')
          .find((line: string) => line.startsWith(metric))
          ?.slice(metric.length) ?? 0,
      );
    };
    const first = await occupant();
    const { body: snapshot } = await system.call('POST', `/v1/environments/${first}/snapshots`, {});
    const before = await measured();
    const waited = post({ queue_timeout_seconds: 60 }, {}, 'measured');
    await untilQueued('fuse-measured');
    const seed = { seed_snapshot_id: snapshot.id, queue_timeout_seconds: 60, wait: false };
    const { body: seeded } = await post(seed);
    const run = await create(system.call, { cmd: ['true'] });
    await destroy(first);
    expect((await waited).status).toBe(201);
    await destroy('fuse-measured');
    await untilRunning(seeded.id);
    await destroy(seeded.id);
    await untilEnded(system.call, run.id);
    expect(await measured()).toBe(before + 3);
    await system.call('DELETE', `/v1/snapshots/${snapshot.id}`);
  });

  it('are not passed by those of their tenant that come anew', async () => {
    const first = await occupant(1);
    const { body: big } = await post({ spec: { cpus: 2 }, queue_timeout_seconds: 60, wait: false });
    await using db = engine === 'postgres' ? await openDatabase(system.location, quiet) : undefined;
    if (db !== undefined) {
      await sql`update environments set created_at = now() - interval '11 seconds' where id = ${big.id}`.execute(
        db.query,
      );
      const refused = await post({ spec: { cpus: 1 } });
      expect(refused.status).toBe(503);
      expect(refused.body.error.details).toEqual({
        reason: 'no_room',
        hosts: 'host-1 has its room promised to others that wait',
      });
      const run = await create(system.call, { cmd: ['true'] });
      expect(run.state).toBe('queued');
      await system.call('POST', `/v1/runs/${run.id}?action=cancel`);
    }
    await destroy(first);
    await untilRunning(big.id);
    await destroy(big.id);
  });

  it('hold up nobody else’s while their own tenant’s are in the way', async () => {
    const first = await occupant(1);
    const { body: big } = await post({ spec: { cpus: 2 }, queue_timeout_seconds: 60, wait: false });
    await system.call('POST', '/v1/tenants', { id: 'newcomer' });
    const init = { headers: { [TENANT_HEADER]: 'newcomer' } };
    await using db = engine === 'postgres' ? await openDatabase(system.location, quiet) : undefined;
    if (db !== undefined)
      await sql`update environments set created_at = now() - interval '11 seconds' where id = ${big.id}`.execute(
        db.query,
      );
    const { status, body: small } = await post({ spec: { cpus: 1 } }, init);
    expect(status).toBe(201);
    await system.call('DELETE', `/v1/environments/${small.id}`, undefined, init);
    await destroy(first);
    await untilRunning(big.id);
    await destroy(big.id);
  });

  it('wait for their tenant’s quotas too, which hold up nobody else', async () => {
    await system.call('POST', '/v1/tenants', { id: 'small', quotas: { environments: 1 } });
    const init = { headers: { [TENANT_HEADER]: 'small' } };
    const { body: first } = await post({}, init);
    expect((await post({}, init)).status).toBe(429);
    const { status, body: second } = await post({ queue_timeout_seconds: 60, wait: false }, init);
    expect(status).toBe(202);
    expect(second.queued.reason).toMatch(/^quota environments: the limit is 1/);
    await destroy(await occupant(1));
    await system.call('DELETE', `/v1/environments/${first.id}`, undefined, init);
    await untilRunning(second.id, init);
    await system.call('DELETE', `/v1/environments/${second.id}`, undefined, init);
  });

  it('say so when it was their tenant’s quota that they waited for in vain', async () => {
    await system.call('POST', '/v1/tenants', { id: 'full', quotas: { cpus: 1 } });
    const init = { headers: { [TENANT_HEADER]: 'full' } };
    const { body: first } = await post({}, init);
    expect((await post({}, init)).body.error.hint).toMatch(/ Or give a queue timeout /);
    const late = await post({ queue_timeout_seconds: 1 }, init);
    expect(late).toMatchObject({ status: 503, body: { error: { details: { reason: 'quota_exceeded' } } } });
    expect(late.body.error.details.hosts).toBeUndefined();
    expect(late.body.error.message).toMatch(/quota cpus: the limit is 1, 1 are used/);
    const fork = await system.call('POST', `/v1/environments/${first.id}?action=fork`, {}, init);
    expect(fork.status).toBe(429);
    expect(fork.body.error.hint).not.toMatch(/queue timeout/);
    await system.call('DELETE', `/v1/environments/${first.id}`, undefined, init);
  });

  it('keep the lifetime that they were given while they waited, which is no part of their age', async () => {
    await system.call('POST', '/v1/tenants', { id: 'renewed', quotas: { cpus: 1, max_run_seconds: 100 } });
    const init = { headers: { [TENANT_HEADER]: 'renewed' } };
    const { body: first } = await post({}, init);
    const { body: waiting } = await post({ queue_timeout_seconds: 60, wait: false }, init);
    await using db = engine === 'postgres' ? await openDatabase(system.location, quiet) : undefined;
    if (db !== undefined)
      await sql`update environments set created_at = now() - interval '90 seconds' where id = ${waiting.id}`.execute(
        db.query,
      );
    const renew = (expires_in_seconds: number) =>
      system.call('PATCH', `/v1/environments/${waiting.id}`, { expires_in_seconds }, init);
    const renewed = await renew(77);
    expect(renewed.status).toBe(200);
    await system.call('DELETE', `/v1/environments/${first.id}`, undefined, init);
    const { body: running } = await untilRunning(waiting.id, init);
    expect(running.expires_at).toBe(renewed.body.expires_at);
    expect((await renew(50)).status).toBe(200);
    expect((await renew(101)).status).toBe(429);
    await system.call('DELETE', `/v1/environments/${waiting.id}`, undefined, init);
  });

  it('end when the lifetime that they were given is over before there is room', async () => {
    const first = await occupant();
    const { body: waiting } = await post({ queue_timeout_seconds: 60, wait: false });
    expect((await system.call('PATCH', `/v1/environments/${waiting.id}`, { expires_in_seconds: 1 })).status).toBe(200);
    await until(
      () => get(waiting.id),
      ({ status }) => status === 404,
    );
    await destroy(first);
  });

  it('take turns with other tenants', async () => {
    for (const id of ['many', 'few']) await system.call('POST', '/v1/tenants', { id });
    const as = (tenant: string) => ({ headers: { [TENANT_HEADER]: tenant } });
    const first = await occupant();
    const ask = async (tenant: string) =>
      create(system.call, { cmd: ['true'], limits: { cpus: 2 } }, as(tenant).headers);
    const many = [];
    for (let n = 0; n < 4; n += 1) many.push(await ask('many'));
    const few = await ask('few');
    await destroy(first);
    const startedAt = async (tenant: string, id: string) => {
      const run = await untilEnded((method, path) => system.call(method, path, undefined, as(tenant)), id);
      return run.started_at ?? '';
    };
    const ofFew = await startedAt('few', few.id);
    const ofMany = [];
    for (const { id } of many) ofMany.push(await startedAt('many', id));
    expect(ofMany.filter((at) => at < ofFew).length).toBeLessThanOrEqual(1);
    expect(ofMany).toEqual([...ofMany].sort());
  });
});

describe('the queue of environments with two replicas', () => {
  it('goes on when the one they were asked of stops', async () => {
    await using system = await startTestOrchestrator('postgres', { host: { capacity: { cpus: 2, vm_count: 2 } } });
    const second = await system.another();
    const ask = (task_id: string, wait: boolean) =>
      fetch(`${second.url}/v1/environments`, {
        method: 'POST',
        headers: { authorization: `Bearer ${system.config.masterToken}` },
        body: JSON.stringify({ task_id, queue_timeout_seconds: 60, wait }),
      });
    const { body: first } = await system.call('POST', '/v1/environments', { task_id: 'first', spec: { cpus: 2 } });
    expect((await ask('unwaited', false)).status).toBe(202);
    const waited = ask('waited', true);
    await until(
      () => system.call('GET', '/v1/environments'),
      ({ body }) => body.environments.length === 3,
    );
    const stopping = second[Symbol.asyncDispose]();
    const answer = await waited;
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ error: { details: { reason: 'queued', id: 'fuse-waited' } } });
    await stopping;
    await system.call('DELETE', `/v1/environments/${first.id}`);
    for (const id of ['fuse-unwaited', 'fuse-waited'])
      await until(
        () => system.call('GET', `/v1/environments/${id}`),
        ({ body }) => body.state === 'running',
      );
  }, 60_000);

  it('places each of a hundred at once, or refuses it with Retry-After, and no room is given twice', async () => {
    await using system = await startTestOrchestrator('postgres', { host: { capacity: { cpus: 4, vm_count: 4 } } });
    const second = await system.another();
    const call = (n: number, method: string, path: string, body?: object): Promise<Answer> =>
      n % 2 === 0
        ? system.call(method, path, body)
        : fetch(`${second.url}${path}`, {
            method,
            headers: { authorization: `Bearer ${system.config.masterToken}` },
            ...(body === undefined ? {} : { body: JSON.stringify(body) }),
          }).then(async (it) => ({ status: it.status, headers: it.headers, body: await it.text() }));
    const outcomes = await Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        const mayWait = n % 4 < 2;
        const made = await call(n, 'POST', '/v1/environments', {
          task_id: `n${n}`,
          ...(mayWait ? { queue_timeout_seconds: 120 } : {}),
        });
        if (made.status === 201) {
          expect((await call(n + 1, 'DELETE', `/v1/environments/fuse-n${n}`)).status).toBe(204);
          return 'made';
        }
        expect(made.status).toBe(503);
        expect(made.headers.get('retry-after')).toMatch(/^\d+$/);
        return mayWait ? 'late' : 'refused';
      }),
    );
    expect(outcomes.filter((outcome) => outcome === 'late')).toEqual([]);
    const made = outcomes.filter((outcome) => outcome === 'made').length;
    expect(made).toBeGreaterThanOrEqual(50);
    expect(system.host.createdVms).toBe(made);
    expect(system.host.mostVms).toBeLessThanOrEqual(4);
    expect(system.host.vms.size).toBe(0);
    expect((await system.call('GET', '/v1/hosts/host-1')).body.allocated.vm_count).toBe(0);
  }, 120_000);

  it('is bounded for each tenant', async () => {
    await using system = await startTestOrchestrator('postgres', { host: { capacity: { cpus: 1, vm_count: 1 } } });
    await system.call('POST', '/v1/environments', { task_id: 'first' });
    await system.call('POST', '/v1/tenants', { id: 'other' });
    await using db = await openDatabase(system.location, quiet);
    await sql`insert into environments (id, task_id, vm_id, state, image, spec, cpus, ram_mb, storage_gb, env, queue_deadline)
      select 'q' || n, 'q' || n, 'vm-q' || n, 'provisioning', 'base', '{}', 1, 512, 2, '{}', now() + interval '1 hour'
      from generate_series(1, 10000) n`.execute(db.query);
    const ask = (task_id: string, init: RequestInit = {}) =>
      system.call('POST', '/v1/environments', { task_id, queue_timeout_seconds: 60, wait: false }, init);
    const refused = await ask('too-many');
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
    expect(refused.body.error.details.reason).toBe('queue_full');
    expect((await system.call('POST', '/v1/runs', { cmd: ['true'] })).body.error.details.reason).toBe('queue_full');
    expect((await ask('elsewhere', { headers: { [TENANT_HEADER]: 'other' } })).status).toBe(202);
    await sql`delete from environments where queue_deadline is not null`.execute(db.query);
  }, 60_000);
});
