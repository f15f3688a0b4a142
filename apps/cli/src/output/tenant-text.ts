import type { Tenant } from '@fuse/sdk';
import { properties } from './format.ts';

export const tenantHeadings = ['ID', 'LABEL', 'STATE', 'QUOTAS', 'CREATED'] as const;

const stateOf = ({ disabled }: Tenant): string => (disabled ? 'disabled' : 'active');
const quotasOf = ({ quotas }: Tenant): string =>
  Object.entries(quotas)
    .map(([name, limit]) => `${name}=${limit}`)
    .join(' ') || 'none';

export const tenantRow = (tenant: Tenant): string[] => [
  tenant.id,
  tenant.label ?? '',
  stateOf(tenant),
  quotasOf(tenant),
  tenant.created_at,
];

export const tenantText = (tenant: Tenant): string =>
  properties({
    id: tenant.id,
    label: tenant.label,
    state: stateOf(tenant),
    quotas: quotasOf(tenant),
    created: tenant.created_at,
    updated: tenant.updated_at,
  });
