import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe.each(engines)('tenants on %s', (engine) => {
  let scene: TestOrchestrator;
  beforeAll(async () => {
    scene = await startTestOrchestrator(engine);
  }, 60_000);
  afterAll(() => scene?.[Symbol.asyncDispose]());
  const inTenant = (tenant: string) => ({ headers: { 'fuse-tenant': tenant } });

  it('are made, listed by id, changed and deleted', async () => {
    const made = await scene.call('POST', '/v1/tenants', {
      id: 'acme',
      label: 'Acme',
      quotas: { environments: 2, cpus: null },
    });
    expect(made).toMatchObject({ status: 201 });
    expect(made.body).toEqual({
      id: 'acme',
      label: 'Acme',
      quotas: { environments: 2 },
      disabled: false,
      created_at: expect.any(String),
      updated_at: expect.any(String),
    });
    expect((await scene.call('POST', '/v1/tenants', { id: 'acme' })).status).toBe(409);
    await scene.call('POST', '/v1/tenants', { id: 'zeta' });
    const first = await scene.call('GET', '/v1/tenants?limit=2');
    expect(first.body.tenants.map(({ id }: { id: string }) => id)).toEqual(['acme', 'default']);
    const second = await scene.call('GET', `/v1/tenants?limit=2&cursor=${first.body.next_cursor}`);
    expect(second.body).toEqual({ tenants: [expect.objectContaining({ id: 'zeta' })] });
    const patched = await scene.call('PATCH', '/v1/tenants/acme', {
      label: null,
      quotas: { environments: null, ram_mb: 512 },
    });
    expect(patched.body).toMatchObject({ quotas: { ram_mb: 512 } });
    expect(patched.body).not.toHaveProperty('label');
    expect((await scene.call('GET', '/v1/tenants/acme')).body).toEqual(patched.body);
    expect((await scene.call('DELETE', '/v1/tenants/zeta')).status).toBe(204);
    for (const method of ['GET', 'PATCH', 'DELETE'])
      expect(await scene.call(method, '/v1/tenants/zeta', method === 'PATCH' ? {} : undefined)).toMatchObject({
        status: 404,
        body: { error: { code: 'not_found' } },
      });
    expect((await scene.call('DELETE', '/v1/tenants/default')).status).toBe(409);
  });

  it('are listed with what each of them has and what waits, in the figures of its own usage', async () => {
    for (const id of ['busy', 'idle']) await scene.call('POST', '/v1/tenants', { id, quotas: { environments: 1 } });
    const busy = inTenant('busy');
    const { body: first } = await scene.call('POST', '/v1/environments', { task_id: 'one', spec: { cpus: 2 } }, busy);
    const waiting = { task_id: 'two', queue_timeout_seconds: 60, wait: false };
    const { body: second } = await scene.call('POST', '/v1/environments', waiting, busy);
    expect((await scene.call('POST', `/v1/environments/${first.id}/snapshots`, {}, busy)).status).toBe(201);
    await scene.call('POST', '/v1/files', 'x'.repeat(100), busy);
    const { body: run } = await scene.call('POST', '/v1/runs', { shell: 'true', queue_timeout_ms: 60_000 }, busy);
    const { body } = await scene.call('GET', '/v1/tenants?include=usage');
    const usageIn = (id: string) => body.tenants.find((tenant: { id: string }) => tenant.id === id).usage;
    expect(usageIn('busy')).toEqual({
      used: (await scene.call('GET', '/v1/usage', undefined, busy)).body.used,
      waiting: { environments: 1, runs: 1, since: second.created_at },
    });
    expect(usageIn('busy').used).toMatchObject({ environments: 1, cpus: 2, creates_per_minute: 3, output_bytes: 100 });
    expect(usageIn('idle')).toEqual({
      used: (await scene.call('GET', '/v1/usage', undefined, inTenant('idle'))).body.used,
      waiting: { environments: 0, runs: 0 },
    });
    expect((await scene.call('GET', '/v1/tenants')).body.tenants[0]).not.toHaveProperty('usage');
    expect(await scene.call('GET', '/v1/tenants?include=keys')).toMatchObject({
      status: 400,
      body: { error: { details: { field: 'include' } } },
    });
    const refused = await scene.call('DELETE', '/v1/tenants/busy');
    expect(refused).toMatchObject({
      status: 409,
      body: {
        error: {
          code: 'conflict',
          message: 'tenant busy has 2 environments, 1 open run and 1 snapshot',
          details: { environments: '2', open_runs: '1', snapshots: '1' },
        },
      },
    });
    for (const command of [
      'environment list --all',
      'environment destroy ID',
      'runs list',
      'runs cancel ID',
      'snapshot list',
      'snapshot delete ID',
    ])
      expect(refused.body.error.hint).toContain(`\`fuse ${command} --tenant busy\``);
    expect(refused.body.error.hint).toContain('`fuse tenants disable busy`');
    await scene.call('POST', `/v1/runs/${run.id}?action=cancel`, undefined, busy);
    for (const { id } of [second, first]) await scene.call('DELETE', `/v1/environments/${id}`, undefined, busy);
  });

  it('are made once for an Idempotency-Key', async () => {
    const headers = { 'idempotency-key': 'one-tenant' };
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => scene.call('POST', '/v1/tenants', { id: 'once' }, { headers })),
    );
    expect(new Set(answers.map(({ status, body }) => `${status} ${JSON.stringify(body)}`)).size).toBe(1);
    expect(answers[0]?.status).toBe(201);
  });

  it('refuse what makes no sense, by field', async () => {
    for (const [body, field] of [
      [{}, 'id'],
      [{ id: '' }, 'id'],
      [{ id: 'Upper' }, 'id'],
      [{ id: '-x' }, 'id'],
      [{ id: 'x'.repeat(64) }, 'id'],
      [{ id: 'x', label: 7 }, 'label'],
      [{ id: 'x', quotas: { cpus: -1 } }, 'quotas.cpus'],
      [{ id: 'x', quotas: { cpus: 1.5 } }, 'quotas.cpus'],
    ] as const)
      expect(await scene.call('POST', '/v1/tenants', body)).toMatchObject({
        status: 400,
        body: { error: { code: 'invalid_argument', details: { field } } },
      });
    for (const [method, path] of [
      ['POST', '/v1/tenants'],
      ['PATCH', '/v1/tenants/default'],
    ] as const) {
      const answer = await scene.call(method, path, { id: 'typo', quotas: { cpus: 1, cpu: 1 }, other: 1 });
      expect(answer).toMatchObject({ status: 400, body: { error: { details: { field: 'quotas.cpu' } } } });
      expect(answer.body.error.message).toMatch(
        /^quotas\.cpu: is no quota; there are environments, cpus, .*output_bytes/,
      );
    }
    expect(await scene.call('PATCH', '/v1/tenants/default', { disabled: 'yes' })).toMatchObject({
      status: 400,
      body: { error: { details: { field: 'disabled' } } },
    });
  });

  it('have names of their own: the same task in two of them is two environments, and neither sees the other', async () => {
    for (const id of ['left', 'right']) await scene.call('POST', '/v1/tenants', { id });
    const create = (tenant: string) => scene.call('POST', '/v1/environments', { task_id: 'same' }, inTenant(tenant));
    const [left, right] = await Promise.all([create('left'), create('right')]);
    expect([left.status, right.status]).toEqual([201, 201]);
    expect(left.body.id).toBe(right.body.id);
    const { body } = await scene.call('GET', '/v1/environments', undefined, inTenant('left'));
    expect(body.environments).toHaveLength(1);
    expect((await scene.call('GET', '/v1/environments/fuse-same')).status).toBe(404);
    expect((await scene.call('DELETE', '/v1/environments/fuse-same', undefined, inTenant('left'))).status).toBe(204);
    expect((await scene.call('GET', '/v1/environments/fuse-same', undefined, inTenant('right'))).status).toBe(200);
  });

  it('are not deleted while they have anything, and their ids are not taken again while something of theirs is known', async () => {
    expect(await scene.call('DELETE', '/v1/tenants/right')).toMatchObject({
      status: 409,
      body: {
        error: {
          code: 'conflict',
          message: 'tenant right has 1 environment',
          details: { environments: '1', open_runs: '0', snapshots: '0' },
          hint: expect.not.stringContaining('fuse runs'),
        },
      },
    });
    await scene.call('DELETE', '/v1/environments/fuse-same', undefined, inTenant('right'));
    expect((await scene.call('DELETE', '/v1/tenants/right')).status).toBe(204);
    expect((await scene.call('GET', '/v1/environments', undefined, inTenant('right'))).status).toBe(404);
    expect(await scene.call('POST', '/v1/tenants', { id: 'right' })).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict' } },
    });
  });

  it('that are disabled refuse their keys at once, until they are enabled again', async () => {
    await scene.call('POST', '/v1/tenants', { id: 'pausing' });
    const { body } = await scene.call('POST', '/v1/api-keys', { tenant_id: 'pausing' });
    const ask = () =>
      scene.call('GET', '/v1/environments', undefined, { headers: { authorization: `Bearer ${body.key}` } });
    expect((await ask()).status).toBe(200);
    expect((await scene.call('PATCH', '/v1/tenants/pausing', { disabled: true })).body.disabled).toBe(true);
    expect(await ask()).toMatchObject({ status: 403, body: { error: { code: 'forbidden' } } });
    expect((await scene.call('PATCH', '/v1/tenants/pausing', { disabled: false })).body.disabled).toBe(false);
    expect((await ask()).status).toBe(200);
    expect((await scene.call('DELETE', '/v1/tenants/pausing')).status).toBe(204);
    expect((await ask()).status).toBe(401);
  });
});
