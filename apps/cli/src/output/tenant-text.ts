import type { Tenant } from '@fuse/sdk';
import { properties } from './format.ts';
import { policyText } from './network-text.ts';
import { amountText } from './usage-text.ts';

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
    'network max': tenant.network_max && policyText(tenant.network_max),
    'network default': tenant.network_default && policyText(tenant.network_default),
    created: tenant.created_at,
    updated: tenant.updated_at,
  });

const USED = ['environments', 'cpus', 'ram_mb', 'storage_gb', 'snapshot_bytes', 'output_bytes'] as const;
export const usageHeadings = ['ID', ...USED.map((name) => name.toUpperCase().replace('_', ' ')), 'WAITING'] as const;

/** Used, and the limit behind it where there is one. */
export const usageRow = ({ id, quotas, usage }: Tenant): string[] => [
  id,
  ...USED.map((name) => {
    const limit = quotas[name];
    const used = amountText(name, usage?.used[name] ?? 0);
    return limit === undefined ? used : `${used}/${amountText(name, limit)}`;
  }),
  String(waitingOf({ usage })),
];

export const queueHeadings = ['TENANT', 'ENVIRONMENTS', 'RUNS', 'SINCE'] as const;

export const queueRow = ({ id, usage }: Tenant): string[] => [
  id,
  String(usage?.waiting.environments ?? 0),
  String(usage?.waiting.runs ?? 0),
  usage?.waiting.since ?? '',
];

/** How many of its environments and runs wait for room. */
export const waitingOf = ({ usage }: Pick<Tenant, 'usage'>): number =>
  usage === undefined ? 0 : usage.waiting.environments + usage.waiting.runs;
