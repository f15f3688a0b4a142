/** The rows of hosts. */
import type { HostImage, HostTemplate } from '@fuse/host-protocol';
import { sql } from 'kysely';
import { channels, jsonb, notify, now, type Queryable, type Tx } from '../db/db.ts';
import type { HostRow } from '../db/schema.ts';
import { recordEvent } from '../events/events.ts';
import type { GpuCapacity } from '../scheduling/gpus.ts';
import type { Capacity, SchedulableHost, Usage } from '../scheduling/schedule.ts';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';

export interface HostRegistration {
  id: string;
  url: string;
  token: string | null;
  region: string | null;
  backend: string;
  arch: string;
  labels: Record<string, string>;
  capacity: Capacity;
  /** The amounts of it that were declared: they stand. */
  declared: string[];
  gpuCapacity: GpuCapacity;
  images: HostImage[];
  /** Undefined: it could not be asked. */
  freeStorageGb: number | undefined;
  templates: HostTemplate[];
  noNetwork: string | undefined;
}

/**
 * `replace`: as newly registered, whatever was there. Otherwise its age and what its operator chose (cordoned, lost) are kept.
 * What its environments use is a sum over them: it survives both.
 */
export async function upsertHost(
  tx: Tx,
  sealer: Sealer,
  host: HostRegistration,
  mode: 'replace' | 'refresh',
): Promise<HostRow> {
  const { capacity } = host;
  const values = {
    url: host.url,
    token: null,
    token_sealed: host.token === null ? null : sealer.seal(host.token, sealedAt('hosts.token_sealed', host.id)),
    region: host.region,
    backend: host.backend,
    arch: host.arch,
    labels: jsonb(host.labels),
    images: jsonb(host.images),
    templates: jsonb(host.templates),
    free_storage_gb: host.freeStorageGb ?? null,
    no_network: host.noNetwork ?? null,
    declared: host.declared,
    gpu_capacity: jsonb(host.gpuCapacity),
    ...capacity,
    unreachable_at: null,
    last_seen: now,
    updated_at: now,
  };
  const row = await tx
    .insertInto('hosts')
    .values({ id: host.id, ...values })
    .onConflict((conflict) =>
      conflict
        .column('id')
        .doUpdateSet(mode === 'replace' ? { ...values, state: 'active', lost_at: null, created_at: now } : values),
    )
    .returningAll()
    .executeTakeFirstOrThrow();
  await recordEvent(tx, { subjectKind: 'host', subjectId: host.id, kind: 'registered', data: { url: host.url } });
  await notify(tx, channels.capacity);
  return row;
}

export const openHostToken = (sealer: Sealer, host: Pick<HostRow, 'id' | 'token' | 'token_sealed'>): string | null =>
  host.token_sealed === null ? host.token : sealer.open(host.token_sealed, sealedAt('hosts.token_sealed', host.id));

export function hostById(db: Queryable, id: string): Promise<HostRow | undefined> {
  return db.selectFrom('hosts').selectAll().where('id', '=', id).executeTakeFirst();
}

/** Until the transaction ends no admission chooses it. */
export function lockHost(tx: Tx, id: string): Promise<HostRow | undefined> {
  return tx.selectFrom('hosts').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
}

export function allHosts(db: Queryable): Promise<HostRow[]> {
  return db.selectFrom('hosts').selectAll().orderBy('id').execute();
}

export function listHosts(db: Queryable, afterId: string | undefined, limit: number): Promise<HostRow[]> {
  let query = db.selectFrom('hosts').selectAll();
  if (afterId !== undefined) query = query.where('id', '>', afterId);
  return query
    .orderBy('id')
    .limit(limit + 1)
    .execute();
}

/**
 * Rows are locked in one order, so that transactions which lock several never wait in a circle: hosts, then snapshots, then environments. A row that
 * refers to a host locks it a little: whoever inserts one and admits takes the hosts first.
 */
export async function lockHosts(tx: Tx): Promise<void> {
  await tx.selectFrom('hosts').select('id').orderBy('id').forUpdate().execute();
}

/** Who admits holds every host's row, so that admissions go one after the other. */
export async function hostsForPlacement(db: Queryable, staleMs: number, lock: boolean) {
  const query = db
    .selectFrom('hosts')
    .selectAll()
    .select(
      sql<boolean>`lost_at is null and last_seen > now() - ${staleMs}::float8 * interval '1 millisecond'`.as(
        'reachable',
      ),
    )
    .orderBy('id');
  return (lock ? query.forUpdate() : query).execute();
}

export const toSchedulable = (row: HostRow & { reachable: boolean }, used: Usage | undefined): SchedulableHost => {
  const { cpus, ram_mb, storage_gb, vm_count } = row;
  return {
    id: row.id,
    state: row.lost_at === null ? row.state : 'lost',
    reachable: row.reachable,
    region: row.region ?? undefined,
    arch: row.arch,
    backend: row.backend,
    labels: row.labels,
    images: row.images.map((image) => image.name),
    templates: row.templates,
    capacity: { cpus, ram_mb, storage_gb, vm_count },
    gpus: row.gpu_capacity,
    used: used ?? { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 },
    freeStorageGb: row.free_storage_gb ?? undefined,
    noNetwork: row.no_network ?? undefined,
  };
};

/** Only without a live environment: the caller checks in the same transaction, holding the row. */
export async function deleteHost(tx: Tx, id: string): Promise<void> {
  await tx.deleteFrom('hosts').where('id', '=', id).execute();
  await recordEvent(tx, { subjectKind: 'host', subjectId: id, kind: 'deleted', data: {} });
}
