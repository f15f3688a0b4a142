import type { Snapshot } from '@fuse/sdk';
import { formatAge, formatBytes, formatMs, properties } from './format.ts';

export const snapshotHeadings = [
  'ID',
  'STATE',
  'ENVIRONMENT',
  'NAME',
  'MODE',
  'SIZE',
  'STORED',
  'AGE',
  'COMMENT',
] as const;

const size = (bytes: number | undefined): string | undefined => (bytes === undefined ? undefined : formatBytes(bytes));

export const snapshotRow =
  (nowMs: number) =>
  (snapshot: Snapshot): string[] => [
    snapshot.id,
    snapshot.state,
    snapshot.vm_id,
    snapshot.name ?? '',
    snapshot.mode,
    size(snapshot.size_bytes) ?? '',
    size(snapshot.stored_bytes) ?? '',
    formatAge(nowMs - Date.parse(snapshot.created_at)),
    snapshot.state === 'error' && snapshot.last_error !== undefined
      ? `error: ${snapshot.last_error}`
      : (snapshot.comment ?? ''),
  ];

export function snapshotText(snapshot: Snapshot): string {
  return properties({
    id: snapshot.id,
    state: snapshot.state,
    error: snapshot.last_error,
    environment: snapshot.vm_id,
    name: snapshot.name,
    comment: snapshot.comment,
    mode: snapshot.mode,
    holds: snapshot.include_memory ? 'memory, devices and disk' : 'disk alone',
    'stood still': snapshot.pause_ms === undefined ? undefined : formatMs(snapshot.pause_ms),
    size: size(snapshot.size_bytes),
    stored: size(snapshot.stored_bytes),
    'in store': size(snapshot.exported_bytes),
    export: exportText(snapshot),
    parent: snapshot.parent_snapshot_id,
    host: snapshot.host_id,
    image: snapshot.image,
    'layer key': snapshot.layer_key,
    arch: snapshot.arch,
    digest: snapshot.digest,
    'kept until': snapshot.retention_until,
    created: snapshot.created_at,
  });
}

function exportText({ exports = [] }: Snapshot): string | undefined {
  const known = exports.map(({ destination, status = 'pending', last_error }) =>
    [destination, status, ...(last_error === undefined ? [] : [last_error])].join(' '),
  );
  return known.length === 0 ? undefined : known.join('; ');
}
