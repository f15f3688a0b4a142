/** Starts from a snapshot: what of it a new environment takes over, and what its host is told. */
import {
  AppError,
  type CreateEnvironment,
  type EnvironmentSpec,
  invalidField,
  type NetworkPolicy,
} from '@fuse/contract';
import type { SnapshotSource } from '@fuse/host-protocol';
import type { Db, Queryable, Tx } from '../db/db.ts';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';
import { lockHosts } from '../hosts/host-store.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { markDamaged } from '../snapshots/mark-damaged.ts';
import { openSnapshotEnv } from '../snapshots/snapshot-secrets.ts';
import { lockSnapshot, snapshotById } from '../snapshots/snapshot-store.ts';
import type { Admission, Seed } from './admission.ts';
import { knownArch } from './environment.ts';
import { requireDiskAlone } from './gpus.ts';

const SHAPE = ['cpus', 'ram_mb', 'storage_gb'] as const;

/** For the transaction that admits: the snapshot's row is held until its end. 400, 404 or 409 when it cannot be started so. */
export async function seeded(
  tx: Tx,
  sealer: Sealer,
  tenantId: string,
  request: CreateEnvironment & { seed_snapshot_id: string },
): Promise<Pick<Admission, 'spec' | 'env' | 'seed'> & { network: NetworkPolicy }> {
  const { spec = {}, env = {}, seed_snapshot_id: id, fallback } = request;
  if (spec.image !== undefined && spec.image !== '')
    throw invalidField('spec.image', 'goes without seed_snapshot_id: the snapshot has its image');
  await lockHosts(tx);
  const snapshot = await lockSnapshot(tx, id, 'share');
  if (snapshot === undefined || snapshot.tenant_id !== tenantId)
    throw new AppError('not_found', `snapshot ${id} not found`, { details: { field: 'seed_snapshot_id' } });
  requireStartable(snapshot);
  checkShape(spec, snapshot);
  requireDiskAlone(spec, { id, includeMemory: snapshot.include_memory }, fallback);
  const { cpus, ram_mb, storage_gb, image } = snapshot;
  return {
    spec: { ...spec, cpus, ram_mb, storage_gb, image },
    env: { ...openSnapshotEnv(sealer, snapshot), ...env },
    seed: seedFrom(snapshot, fallback),
    network: snapshot.network,
  };
}

export function seedFrom(snapshot: SnapshotRow, fallback?: 'disk'): Seed {
  return {
    snapshotId: snapshot.id,
    hostId: snapshot.host_id,
    arch: snapshot.arch,
    isExported: snapshot.manifest_key !== null,
    fallback,
  };
}

export function requireStartable(snapshot: SnapshotRow): void {
  if (snapshot.state !== 'ready') {
    const why = snapshot.last_error === null ? '' : `: ${snapshot.last_error}`;
    throw new AppError('conflict', `snapshot ${snapshot.id} is ${snapshot.state}, not ready${why}`, {
      details: { field: 'seed_snapshot_id', state: snapshot.state },
    });
  }
  if (snapshot.host_id === null && snapshot.manifest_key === null)
    throw new AppError('conflict', `snapshot ${snapshot.id} was on a host that is no more, and was not exported`, {
      details: { field: 'seed_snapshot_id' },
    });
}

/** Memory and disk are what they are. */
function checkShape(spec: EnvironmentSpec, snapshot: SnapshotRow): void {
  for (const key of SHAPE) {
    const asked = spec[key];
    if (asked !== undefined && asked !== 0 && asked !== snapshot[key])
      throw invalidField(`spec.${key}`, `the snapshot has ${snapshot[key]}: leave it out, or give the same`);
  }
  if (spec.arch !== undefined && spec.arch !== '' && knownArch(spec.arch) !== snapshot.arch)
    throw invalidField('spec.arch', `the snapshot is ${snapshot.arch}`);
}

/** What the host starts it from; undefined: a template. */
export async function sourceOf(db: Queryable, row: EnvironmentRow): Promise<SnapshotSource | undefined> {
  if (row.seed_snapshot_id === null) return undefined;
  const snapshot = await snapshotById(db, row.seed_snapshot_id);
  return {
    snapshot_id: row.seed_snapshot_id,
    ...(snapshot?.manifest_key ? { manifest_key: snapshot.manifest_key } : {}),
    ...(row.fallback === null ? {} : { fallback: row.fallback }),
  };
}

/** Told by a host that could not start from it. */
export async function reportSeedFailure(db: Db, row: EnvironmentRow, error: unknown): Promise<void> {
  if (row.seed_snapshot_id === null || !(error instanceof AppError)) return;
  if (error.code === 'integrity_error' || error.code === 'not_found')
    await markDamaged(db, row.seed_snapshot_id, error.message);
}
