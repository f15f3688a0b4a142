/** Snapshots: memory, devices and disk of one instant of an environment. Wire shapes are api.md sections 1.4 and 2.7; fields marked "ours" are additions. */
import { z } from 'zod';
import { DEFAULT_IMAGE, EnvironmentSpec } from './environment.ts';
import { absentIfNull, Timestamp } from './primitives.ts';

/**
 * Every state and the states that may follow it. `ready`: whole, flushed and verified on its host or in the object store.
 * `error`: damaged or lost, `last_error` says how; it can only be deleted.
 */
export const snapshotTransitions = {
  creating: ['ready', 'error', 'deleting'],
  ready: ['restoring', 'error', 'deleting'],
  restoring: ['ready', 'error', 'deleting'],
  deleting: [],
  error: ['deleting'],
} as const satisfies Record<string, readonly string[]>;

export type SnapshotState = keyof typeof snapshotTransitions;
export const snapshotStates = Object.keys(snapshotTransitions) as [SnapshotState, ...SnapshotState[]];
export const SnapshotState = z.enum(snapshotStates);

export function snapshotCanBecome(from: SnapshotState, to: SnapshotState): boolean {
  return (snapshotTransitions[from] as readonly string[]).includes(to);
}

export const exportStates = ['none', 'pending', 'running', 'done', 'error'] as const;
export const ExportState = z.enum(exportStates);
export type ExportState = z.infer<typeof ExportState>;

const text = (max: number) =>
  z
    .string()
    .max(max)
    .refine((value) => !value.includes('\0'), 'must not hold NUL');

export const MAX_RETENTION_SECONDS = 315_360_000;
export const DEFAULT_SNAPSHOT_MODE = 'manual';
/** Of snapshots that Fuse takes by itself (fork seeds, checkpoints). */
export const AUTO_SNAPSHOT_MODE = 'auto';

/** Body of `POST /v1/environments/{id}/snapshots`; may be absent altogether. */
export const CreateSnapshot = z.object({
  comment: absentIfNull(text(1_024)),
  /** `manual` (default), `auto`, `build`, or any word of the client's. */
  mode: absentIfNull(text(64)),
  /** Ours; as `metadata.name`, which it overrides. */
  name: absentIfNull(text(256)),
  /** Over 0: deleted by itself after so long. 0 or absent: kept. */
  retention_seconds: absentIfNull(z.number().int().min(0).max(MAX_RETENTION_SECONDS)),
  metadata: absentIfNull(
    z.record(text(256), text(4_096)).refine((metadata) => Object.keys(metadata).length <= 64, 'at most 64 entries'),
  ),
  export_ref: absentIfNull(text(1_024)),
  export_status: absentIfNull(text(64)),
  layer_key: absentIfNull(text(256)),
  /** Ours. False: the disk alone, of a frozen file system; what starts from it cold-boots. Default true. */
  include_memory: absentIfNull(z.boolean()),
  /** Ours. Also into the object store, in the background: restorable on any host, and after its host is lost. */
  export: absentIfNull(z.boolean()),
});
export type CreateSnapshot = z.infer<typeof CreateSnapshot>;

export const Snapshot = z.object({
  id: z.string(),
  /** The environment that it was taken of, which may be gone. */
  vm_id: z.string(),
  task_id: z.string().optional(),
  tenant_id: z.string().optional(),
  parent_snapshot_id: z.string().optional(),
  mode: z.string(),
  state: SnapshotState,
  comment: z.string().optional(),
  name: z.string().optional(),
  layer_key: z.string().optional(),
  arch: z.string().optional(),
  /** Hex sha256 over the digests of all parts. */
  digest: z.string().optional(),
  /** What memory, devices and disk hold, without holes. */
  size_bytes: z.number().int().optional(),
  retention_until: Timestamp.optional(),
  last_error: z.string().optional(),
  export_ref: z.string().optional(),
  exports: z
    .array(
      z.object({
        destination: z.string(),
        status: z.string().optional(),
        requested_at: Timestamp,
        updated_at: Timestamp,
        last_error: z.string().optional(),
      }),
    )
    .optional(),
  /** Ours, from here on. */
  include_memory: z.boolean(),
  /** How long the environment stood still. */
  pause_ms: z.number().optional(),
  /** Bytes that this snapshot added on its host: what changed since its parent. */
  stored_bytes: z.number().int().optional(),
  /** Bytes that its export added to the object store, after deduplication and compression. */
  exported_bytes: z.number().int().optional(),
  host_id: z.string().optional(),
  image: z.string().default(DEFAULT_IMAGE),
  spec: EnvironmentSpec,
  created_at: Timestamp,
  updated_at: Timestamp,
});
export type Snapshot = z.infer<typeof Snapshot>;

export const ListSnapshots = z.object({ snapshots: z.array(Snapshot), next_cursor: z.string().optional() });
export type ListSnapshots = z.infer<typeof ListSnapshots>;

export const ResolvedSnapshot = z.discriminatedUnion('found', [
  z.object({ found: z.literal(false) }),
  z.object({ found: z.literal(true), snapshot: Snapshot }),
]);
export type ResolvedSnapshot = z.infer<typeof ResolvedSnapshot>;

/**
 * `DELETE /v1/snapshots/{id}` answers 204 with these headers: bytes freed now. 409 when another snapshot names it as its parent, unless
 * `?force=true` (nothing of the child is lost: bytes that it shares stay until it goes too).
 */
export const FREED_HOST_BYTES_HEADER = 'fuse-freed-host-bytes';
export const FREED_STORE_BYTES_HEADER = 'fuse-freed-store-bytes';
