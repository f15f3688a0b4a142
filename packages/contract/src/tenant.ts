/**
 * Tenants: the customers of an operator. Each owns its API keys, environments, runs, snapshots, uploads and quotas; whatever names no tenant belongs to
 * `default`. The master acts in `default`, or in the tenant that the header `Fuse-Tenant` names. All of this is ours, api.md has none.
 *
 *   GET    /v1/tenants?limit&cursor&include    (M) -> ListTenants, by id; with include=usage each with its `usage`
 *   POST   /v1/tenants          CreateTenant   (M) -> 201 Tenant | 409
 *   GET    /v1/tenants/{id}                    (M) -> Tenant
 *   PATCH  /v1/tenants/{id}     UpdateTenant   (M) -> Tenant
 *   DELETE /v1/tenants/{id}                    (M) -> 204 | 409 while it has environments, open runs or snapshots: `details` has how many of each. Its keys die with it
 *   GET    /v1/usage                               -> Usage of the caller's tenant, now, beside its quotas
 *   GET    /v1/usage/history?from&to               -> UsageHistory of the caller's tenant, by the hour
 */
import { z } from 'zod';
import { GivenNetworkPolicy, NetworkPolicy } from './network.ts';
import { absentIfNull, Timestamp } from './primitives.ts';

export const DEFAULT_TENANT = 'default';
export const TENANT_HEADER = 'Fuse-Tenant';

export const TenantId = z
  .string()
  .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'must be 1 to 63 lower-case letters, digits or "-"');

const amount = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const quotaFields = {
  /** Environments that are not gone, of runs too; paused ones count. */
  environments: amount,
  /** Sums over environments that hold a reservation: paused ones count with their storage alone. */
  cpus: amount,
  ram_mb: amount,
  storage_gb: amount,
  /** Environments made in any 60 seconds, forks and runs too. */
  creates_per_minute: amount,
  /** The longest `max_runtime_seconds` of an environment and `timeout_ms` of a run. */
  max_run_seconds: amount,
  /** Stored bytes of snapshots that are not gone. */
  snapshot_bytes: amount,
  /** Bytes of outputs of runs and of uploads, while they are kept. */
  output_bytes: amount,
};
export const quotaNames = Object.keys(quotaFields) as (keyof typeof quotaFields)[];
export type QuotaName = keyof typeof quotaFields;

/** Absent: no limit. */
export const Quotas = z.object(quotaFields).partial();
export type Quotas = z.infer<typeof Quotas>;

const label = z.string().max(256);
/** Unlike elsewhere, a name that is not known is refused: a limit that is misspelt would be none. */
const quotasOf = <T extends z.ZodType>(given: T) =>
  z.strictObject(
    Object.fromEntries(quotaNames.map((name) => [name, given])) as Record<QuotaName, T>, // fromEntries forgets the names
    {
      error: ({ code }) =>
        code === 'unrecognized_keys' ? `is no quota; there are ${quotaNames.join(', ')}` : undefined,
    },
  );
const givenQuotas = quotasOf(absentIfNull(amount));

export const CreateTenant = z.object({
  id: TenantId,
  label: absentIfNull(label),
  quotas: absentIfNull(givenQuotas),
  /** What its environments and runs may reach at most. What is asked for beyond it is refused (403), whatever they are started with it holds too. Absent: no maximum. */
  network_max: absentIfNull(GivenNetworkPolicy),
  /** Of those that say nothing. Absent: the deployment's. */
  network_default: absentIfNull(GivenNetworkPolicy),
});
export type CreateTenant = z.infer<typeof CreateTenant>;

/** What is absent stays; null takes the limit, the label or the policy away. A maximum that is lowered holds for what runs when it is answered. */
export const UpdateTenant = z.object({
  label: label.nullable().optional(),
  quotas: quotasOf(amount.nullable().optional()).optional(),
  /** True: its keys are refused (403 `forbidden`) and nothing new starts; what runs goes on. */
  disabled: z.boolean().optional(),
  network_max: GivenNetworkPolicy.nullable().optional(),
  network_default: GivenNetworkPolicy.nullable().optional(),
});
export type UpdateTenant = z.infer<typeof UpdateTenant>;

const used = z.object({
  environments: z.number().int(),
  cpus: z.number().int(),
  ram_mb: z.number().int(),
  storage_gb: z.number().int(),
  creates_per_minute: z.number().int(),
  snapshot_bytes: z.number().int(),
  output_bytes: z.number().int(),
});

/** What a tenant has now, and what of it waits for room. */
export const TenantUsage = z.object({
  used,
  waiting: z.object({
    environments: z.number().int(),
    runs: z.number().int(),
    /** When the one that waits longest was asked for. */
    since: Timestamp.optional(),
  }),
});
export type TenantUsage = z.infer<typeof TenantUsage>;

export const Tenant = z.object({
  id: z.string(),
  label: z.string().optional(),
  quotas: Quotas,
  disabled: z.boolean(),
  network_max: NetworkPolicy.optional(),
  network_default: NetworkPolicy.optional(),
  /** Where it was asked for. */
  usage: TenantUsage.optional(),
  created_at: Timestamp,
  updated_at: Timestamp,
});
export type Tenant = z.infer<typeof Tenant>;

export const ListTenants = z.object({ tenants: z.array(Tenant), next_cursor: z.string().optional() });
export type ListTenants = z.infer<typeof ListTenants>;

/** `used` in the same terms as the quotas; `max_run_seconds` has no use. */
export const Usage = z.object({
  tenant_id: z.string(),
  used,
  quotas: Quotas,
  at: Timestamp,
});
export type Usage = z.infer<typeof Usage>;

const consumption = {
  /** Reserved vCPUs times seconds that the environment ran. */
  vcpu_seconds: z.number(),
  /** Reserved memory. */
  gib_seconds: z.number(),
  /** Of snapshots, outputs and uploads. */
  stored_byte_seconds: z.number(),
  /** Sent to outside of the guest. */
  egress_bytes: z.number().int(),
};
export const UsageHistory = z.object({
  tenant_id: z.string(),
  from: Timestamp,
  to: Timestamp,
  /** Oldest first; hours without any use are left out. `hour`: its beginning. */
  hours: z.array(z.object({ hour: Timestamp, ...consumption })),
  total: z.object(consumption),
});
export type UsageHistory = z.infer<typeof UsageHistory>;
