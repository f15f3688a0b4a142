import { Usage, UsageHistory } from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inTenant, tenantWith } from '../quotas/quota-testing.ts';
import { runToEnd } from '../runs/run-testing.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

describe('GET /v1/usage', () => {
  let test: TestOrchestrator;
  let call: TestOrchestrator['call'];
  let tenant: string;
  beforeAll(async () => {
    test = await startTestOrchestrator('postgres');
    ({ id: tenant, call } = await tenantWith(test.call, { cpus: 4, output_bytes: 10_000 }));
    await call('POST', '/v1/environments', { task_id: 'used', spec: { cpus: 2, storage_gb: 3 } });
    await runToEnd(call, { shell: 'echo result > r.txt', outputs: ['r.txt'] });
  }, 60_000);
  afterAll(() => test[Symbol.asyncDispose]());

  const bearer = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });
  const keyOf = async (scopes: string[]) => (await call('POST', '/v1/api-keys', { scopes })).body.key as string;

  it('tells what is used beside the quotas', async () => {
    const answer = await call('GET', '/v1/usage');
    expect(Usage.parse(answer.body)).toMatchObject({
      tenant_id: tenant,
      used: { cpus: 2, ram_mb: 512, storage_gb: 3, environments: 1, creates_per_minute: 2, snapshot_bytes: 0 },
      quotas: { cpus: 4, output_bytes: 10_000 },
    });
    expect(answer.body.used.output_bytes).toBeGreaterThanOrEqual('result\n'.length);
  });

  it('tells what was used in each hour', async () => {
    const { body, status } = await call('GET', '/v1/usage/history');
    expect(status).toBe(200);
    const history = UsageHistory.parse(body);
    expect(history.total.vcpu_seconds).toBeGreaterThan(0);
    expect(history.total.gib_seconds).toBeGreaterThan(0);
    expect(history.total.egress_bytes).toBe(0);
    expect(history.hours.reduce((sum, { vcpu_seconds }) => sum + vcpu_seconds, 0)).toBeCloseTo(
      history.total.vcpu_seconds,
      1,
    );
    const past = await call('GET', '/v1/usage/history?from=2020-01-01T00:30:00Z&to=2020-01-02T00:00:00%2B02:00');
    expect(past.body).toMatchObject({
      from: '2020-01-01T00:00:00.000Z',
      to: '2020-01-01T22:00:00.000Z',
      hours: [],
      total: { vcpu_seconds: 0, gib_seconds: 0, stored_byte_seconds: 0, egress_bytes: 0 },
    });
  });

  it.each([
    ['from=yesterday', 'from'],
    ['to=2026-02-30T00:00:00Z', 'to'],
    ['from=0000-01-01T00:00:00Z&to=0001-01-01T00:00:00Z', 'from'],
    ['from=0001-01-01T00:00:00%2B01:00&to=0001-01-01T02:00:00Z', 'from'],
    ['to=9999-12-31T23:59:59-14:00', 'to'],
    ['from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z', 'from'],
    ['from=2020-01-01T00:00:00Z&to=2026-01-01T00:00:00Z', 'from'],
  ])('refuses %s', async (query, field) => {
    expect(await call('GET', `/v1/usage/history?${query}`)).toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_argument', details: { field } } },
    });
  });

  it('is for the keys of the tenant that may read, and tells of no other tenant', async () => {
    const other = await tenantWith(test.call, {});
    expect((await other.call('GET', '/v1/usage')).body.used).toMatchObject({ environments: 0, output_bytes: 0 });
    const anybody = inTenant(test.call, tenant);
    for (const [scopes, status] of [
      [['environments:read'], 200],
      [['admin'], 200],
      [[], 200],
      [['files'], 403],
    ] as const) {
      const key = await keyOf([...scopes]);
      for (const path of ['/v1/usage', '/v1/usage/history'])
        expect((await test.call('GET', path, undefined, bearer(key))).status, scopes.join()).toBe(status);
    }
    expect((await anybody('GET', '/v1/usage')).body.tenant_id).toBe(tenant);
  });
});
