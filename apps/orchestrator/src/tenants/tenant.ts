/** A tenant: its row, and what is shown of it. */
import { NetworkPolicy, type QuotaName, type Quotas, quotaNames, type Tenant, type TenantUsage } from '@fuse/contract';
import type { Selectable } from 'kysely';
import type { TenantsTable } from '../db/schema.ts';

export type TenantRow = Selectable<TenantsTable>;
/** Null takes a limit away, absent leaves it. */
export type QuotaChanges = Partial<Record<QuotaName, number | null | undefined>>;

export function toTenant(row: TenantRow, usage?: TenantUsage): Tenant {
  return {
    id: row.id,
    ...(row.label === null ? {} : { label: row.label }),
    quotas: row.quotas,
    disabled: row.disabled_at !== null,
    // In the schema's order of fields.
    ...(row.network_max === null ? {} : { network_max: NetworkPolicy.parse(row.network_max) }),
    ...(row.network_default === null ? {} : { network_default: NetworkPolicy.parse(row.network_default) }),
    ...(usage === undefined ? {} : { usage }),
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
  };
}

export function changedQuotas(quotas: Quotas, changes: QuotaChanges): Quotas {
  const changed: Quotas = {};
  for (const name of quotaNames) {
    const value = changes[name] === undefined ? quotas[name] : changes[name];
    if (value !== undefined && value !== null) changed[name] = value;
  }
  return changed;
}
