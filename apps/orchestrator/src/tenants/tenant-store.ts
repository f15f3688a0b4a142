/** Lock order: idempotency key, tenant, hosts, snapshots, environments. */
import { AppError, type NetworkPolicy, type Quotas, terminalRunStates } from '@fuse/contract';
import { sql } from 'kysely';
import { inMs, jsonb, now, type Queryable, type Tx } from '../db/db.ts';
import type { TenantRow } from './tenant.ts';

/** In order of ids, after `afterId`. */
export function listTenants(query: Queryable, afterId: string | undefined, limit: number): Promise<TenantRow[]> {
  let rows = query.selectFrom('tenants').selectAll();
  if (afterId !== undefined) rows = rows.where('id', '>', afterId);
  return rows.orderBy('id').limit(limit).execute();
}

export function tenantById(query: Queryable, id: string): Promise<TenantRow | undefined> {
  return query.selectFrom('tenants').selectAll().where('id', '=', id).executeTakeFirst();
}

export function lockTenant(tx: Tx, id: string): Promise<TenantRow | undefined> {
  return tx.selectFrom('tenants').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
}

/** 404 when there is none; it is there until the transaction ends. */
export async function requireTenant(tx: Tx, id: string, field: string): Promise<void> {
  const row = await tx.selectFrom('tenants').select('id').where('id', '=', id).forKeyShare().executeTakeFirst();
  if (row === undefined) throw new AppError('not_found', `tenant ${id} not found`, { details: { field } });
}

/** 403 while it is disabled, and once it is gone. */
export async function requireEnabled(query: Queryable, id: string): Promise<void> {
  const row = await tenantById(query, id);
  if (row === undefined || row.disabled_at !== null)
    throw new AppError('forbidden', `tenant ${id} is ${row === undefined ? 'gone' : 'disabled'}`);
}

/** Undefined: there is one of this id already. */
export function insertTenant(
  tx: Tx,
  { id, label, quotas, networks }: { id: string } & Omit<TenantChange, 'isDisabled'>,
): Promise<TenantRow | undefined> {
  return tx
    .insertInto('tenants')
    .values({ id, label, quotas: jsonb(quotas), ...columnsOf(networks) })
    .onConflict((conflict) => conflict.doNothing())
    .returningAll()
    .executeTakeFirst();
}

export interface TenantChange {
  label: string | null;
  quotas: Quotas;
  networks: TenantNetworks;
  isDisabled: boolean;
}

/** Null: no maximum, and the deployment's default. */
export interface TenantNetworks {
  max: NetworkPolicy | null;
  default: NetworkPolicy | null;
}

const columnsOf = (networks: TenantNetworks) => ({
  network_max: networks.max && jsonb(networks.max),
  network_default: networks.default && jsonb(networks.default),
});

export function updateTenant(
  tx: Tx,
  id: string,
  { label, quotas, networks, isDisabled }: TenantChange,
): Promise<TenantRow> {
  return tx
    .updateTable('tenants')
    .set({
      label,
      quotas: jsonb(quotas),
      ...columnsOf(networks),
      disabled_at: isDisabled ? sql<Date>`coalesce(disabled_at, now())` : null,
      updated_at: now,
    })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

export async function deleteTenant(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('tenants').where('id', '=', id).execute();
}

export interface Belongings {
  environments: number;
  open_runs: number;
  snapshots: number;
}

export async function belongingsOf(query: Queryable, tenantId: string): Promise<Belongings> {
  const { rows } = await sql<Belongings>`
    select
      (select count(*) from environments where tenant_id = ${tenantId} and state not in ('destroyed', 'failed'))::int as environments,
      (select count(*) from runs where tenant_id = ${tenantId} and state not in (${sql.join(terminalRunStates)}))::int as open_runs,
      (select count(*) from snapshots where tenant_id = ${tenantId})::int as snapshots`.execute(query);
  return rows[0] ?? { environments: 0, open_runs: 0, snapshots: 0 }; // it is one row
}

/** What is still there of a tenant that was deleted, and would be the next one's of the same id. */
export async function hasRemains(query: Queryable, tenantId: string): Promise<boolean> {
  const { rows } = await sql<{ remains: boolean }>`
    select exists (select from runs where tenant_id = ${tenantId})
      or exists (select from files where tenant_id = ${tenantId})
      or exists (select from environments where tenant_id = ${tenantId}) as remains`.execute(query);
  return rows[0]?.remains === true;
}

/** Its ended runs with their outputs, and its uploads, are collected in the next round; its answers by Idempotency-Key are forgotten. */
export async function expireRemains(tx: Tx, tenantId: string): Promise<void> {
  await tx.updateTable('runs').set({ expires_at: now }).where('tenant_id', '=', tenantId).execute();
  await tx
    .updateTable('files')
    .set({ expires_at: inMs(0) })
    .where('tenant_id', '=', tenantId)
    .execute();
  await tx.deleteFrom('idempotency_keys').where('tenant_id', '=', tenantId).execute();
}
