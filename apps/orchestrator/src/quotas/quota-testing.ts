/** For tests: tenants with quotas, and what acts in them. */
import type { Quotas, Usage } from '@fuse/contract';
import { expect } from 'vitest';
import type { callerOf } from '../test-orchestrator.ts';

type Call = ReturnType<typeof callerOf>;

export const inTenant =
  (call: Call, tenant: string): Call =>
  (method, path, body, init = {}) =>
    call(method, path, body, { ...init, headers: { 'fuse-tenant': tenant, ...(init.headers as object) } });

let tenants = 0;

/** A new tenant with these quotas; calls are the master's in it. */
export async function tenantWith(call: Call, quotas: Quotas): Promise<{ id: string; call: Call }> {
  const id = `tenant-${++tenants}`;
  const made = await call('POST', '/v1/tenants', { id, quotas });
  if (made.status !== 201) throw new Error(`tenant not made: ${JSON.stringify(made.body)}`);
  return { id, call: inTenant(call, id) };
}

export const setQuotas = async (call: Call, id: string, quotas: Quotas): Promise<void> => {
  const changed = await call('PATCH', `/v1/tenants/${id}`, { quotas });
  if (changed.status !== 200) throw new Error(`quotas not set: ${JSON.stringify(changed.body)}`);
};

export const usedBy = async (call: Call): Promise<Usage['used']> => (await call('GET', '/v1/usage')).body.used;

/** What a refusal looks like. */
export const overQuota = (quota: string, limit: number, used: number) => ({
  status: 429,
  body: {
    error: {
      code: 'quota_exceeded',
      message: expect.stringContaining(`quota ${quota}: the limit is ${limit}`),
      details: expect.objectContaining({ quota, limit: String(limit), used: String(used) }),
    },
  },
});
