import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { engines } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';

/** api.md 7.3. */
const NAMES = [
  ...['duration_seconds', 'cycles_total', 'orphans_destroyed_total', 'orphans_failed_total'],
  ...['orphans_dead_lettered_total', 'stuck_tasks_suspected_total', 'stuck_tasks_failed_total'],
  ...['idle_vms_suspected_total', 'idle_vms_failed_total', 'vms_missing_provider_total'],
  ...['health_checked_vms', 'health_failing_vms'],
]
  .map((name) => `reconcile_${name}`)
  .concat(['fleet_tracked_vms', 'fleet_provider_vms'])
  .concat(['requests_total', 'request_duration_seconds', 'requests_in_flight'].map((name) => `http_${name}`))
  .map((name) => `orchestrator_${name}`);

describe.each(engines)('metrics on %s', (engine) => {
  let test: TestOrchestrator;
  let text: string;
  /** Undefined: not there. */
  const value = (name: string): number | undefined => {
    const line = text.split('\n').find((one) => one.startsWith(`${name} `));
    return line === undefined ? undefined : Number(line.slice(name.length + 1));
  };
  beforeAll(async () => {
    test = await startTestOrchestrator(engine);
    await test.call('POST', '/v1/tenants', { id: 'acme', quotas: { environments: 1 } });
    await test.call('POST', '/v1/api-keys', {});
    const inAcme = { headers: { 'fuse-tenant': 'acme' } };
    const create = (id: string, more: object = {}) =>
      test.call('POST', '/v1/environments', { task_id: id, ...more }, inAcme);
    expect((await create('one', { startup_script: 'true' })).status).toBe(201);
    expect((await create('two')).status).toBe(429);
    await vi.waitFor(
      async () => {
        text = (await test.call('GET', '/metrics')).body;
        expect(value('orchestrator_fleet_provider_vms')).toBe(1);
      },
      { timeout: 30_000 },
    );
  }, 120_000);
  afterAll(() => test[Symbol.asyncDispose]());

  it('have the names that operators know', () => {
    expect(value('orchestrator_reconcile_cycles_total')).toBeGreaterThan(0);
    for (const name of NAMES) expect(text).toContain(`# TYPE ${name} `);
  });

  it('tell how the fleet is, from the database', () => {
    expect(value('orchestrator_environments{state="running"}')).toBe(1);
    expect(value('orchestrator_environments{state="provisioning"}')).toBe(0);
    expect(value('orchestrator_fleet_hosts{state="active"}')).toBe(1);
    expect(value('orchestrator_fleet_tracked_vms')).toBe(1);
    for (const resource of ['cpus', 'ram_mb', 'storage_gb']) {
      const reserved = value(`orchestrator_fleet_reserved{resource="${resource}"}`) ?? 0;
      expect(reserved).toBeGreaterThan(0);
      expect(value(`orchestrator_fleet_capacity{resource="${resource}"}`)).toBeGreaterThanOrEqual(reserved);
    }
    for (const kind of ['environment', 'run']) {
      expect(value(`orchestrator_queue_length{kind="${kind}"}`)).toBe(0);
      expect(value(`orchestrator_queue_oldest_seconds{kind="${kind}"}`)).toBe(0);
    }
    expect(value('orchestrator_tenants')).toBe(2);
    expect(value('orchestrator_api_keys')).toBe(1);
  });

  it('tell what was refused, and how long creates take, phase by phase', () => {
    expect(value('orchestrator_quota_refusals_total{quota="environments"}')).toBe(1);
    for (const phase of ['admit', 'template', 'files', 'script'])
      expect(value(`orchestrator_environment_create_phase_seconds_count{phase="${phase}"}`)).toBe(1);
  });

  it('have no label that grows with what there is', () => {
    for (const id of ['acme', 'fuse-one', 'host-1', 'ak_']) expect(text).not.toContain(id);
  });
});
