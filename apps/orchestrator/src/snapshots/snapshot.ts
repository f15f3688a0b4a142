/** What a snapshot is, without clock or adapter: its public form, and what it keeps of its environment. States are contract's `snapshotTransitions`. */
import { EnvironmentSpec, type Snapshot, type SnapshotState } from '@fuse/contract';
import type { EnvironmentRow, SnapshotRow } from '../db/schema.ts';

/** Where our own exports go, in `exports`. */
const OBJECT_STORE = 'object-store';

/** Nothing more becomes of it by itself. */
export const isSettled = (state: SnapshotState): boolean => state === 'ready' || state === 'error';

/** Of the environment's spec what a start from the snapshot takes over, and what says what it was; not where it was placed. */
export function specOf(row: EnvironmentRow): EnvironmentSpec {
  const { host_id: _pin, labels: _labels, ...asked } = row.spec;
  const given = Object.entries(asked).filter(([, value]) => value !== 0 && value !== '');
  const { cpus, ram_mb, storage_gb, image } = row;
  return EnvironmentSpec.parse({ ...Object.fromEntries(given), cpus, ram_mb, storage_gb, image });
}

/** Published clients know a snapshot's owner as its task, a layer's as the key that made it, which is none for the master. */
function publicTenant(row: SnapshotRow): string | undefined {
  return row.layer_key === null ? row.task_id : (row.key_id ?? undefined);
}

export function toSnapshot(row: SnapshotRow): Snapshot {
  const exports = exportsOf(row);
  return {
    id: row.id,
    vm_id: row.vm_id,
    task_id: row.task_id,
    tenant_id: publicTenant(row),
    parent_snapshot_id: row.parent_snapshot_id ?? undefined,
    mode: row.mode,
    state: row.state,
    comment: row.comment ?? undefined,
    name: row.name ?? undefined,
    layer_key: row.layer_key ?? undefined,
    arch: row.arch,
    digest: row.digest ?? undefined,
    size_bytes: row.size_bytes ?? undefined,
    retention_until: row.retention_until?.toISOString(),
    last_error: row.last_error ?? undefined,
    export_ref: row.export_ref ?? undefined,
    exports: exports.length === 0 ? undefined : exports,
    include_memory: row.include_memory,
    pause_ms: row.pause_ms ?? undefined,
    stored_bytes: row.stored_bytes ?? undefined,
    exported_bytes: row.exported_bytes ?? undefined,
    host_id: row.host_id ?? undefined,
    image: row.image,
    spec: EnvironmentSpec.parse(row.spec), // in the schema's order, whatever order the row keeps
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
  };
}

function exportsOf(row: SnapshotRow): NonNullable<Snapshot['exports']> {
  const found: NonNullable<Snapshot['exports']> = [];
  const created = row.created_at.toISOString();
  if (row.export_ref !== null)
    found.push({
      destination: row.export_ref,
      status: row.export_status ?? 'pending',
      requested_at: created,
      updated_at: created,
    });
  if (row.export_state !== 'none')
    found.push({
      destination: OBJECT_STORE,
      status: row.export_state,
      requested_at: row.export_requested_at?.toISOString() ?? created,
      updated_at: row.updated_at.toISOString(),
      ...(row.export_error === null ? {} : { last_error: row.export_error }),
    });
  return found;
}
