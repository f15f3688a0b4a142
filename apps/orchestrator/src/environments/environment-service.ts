/**
 * What others (runs/, reconciling/, routes) may ask of environments. A run's environment goes through exactly the same
 * admission and life as any other.
 */
import type { CreateVm } from '@fuse/host-protocol';
import type { Queryable, Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import type { HostClient } from '../hosts/host-client.ts';
import type { Placement, PlacementSpec, Rejection } from '../scheduling/placement.ts';

export interface Admission {
  tenantId: string;
  taskId: string;
  /** As in the API, defaults applied by the service. */
  spec: Record<string, unknown>;
  env: Record<string, string>;
  runId?: string;
}

export type Admitted = { kind: 'admitted'; environment: EnvironmentRow } | Rejection;

export interface EnvironmentService {
  /** 400 `invalid_argument` naming those that exist when no host has it. */
  requireImage(image: string): Promise<void>;
  /** Whether the shape fits now, later or never; reserves nothing. */
  wouldPlace(db: Queryable, spec: PlacementSpec): Promise<Placement>;
  /**
   * Schedules, reserves and inserts the row (`provisioning`, leased to this process), with its event, in the caller's transaction.
   * 409 `conflict` when the task has a live environment.
   */
  admit(tx: Tx, admission: Admission): Promise<Admitted>;
  /**
   * Takes a `provisioning` environment to `running` on its host; may be called again by another process (the VM is made once).
   * On failure the environment is `failed` with the reason, its VM deleted, its reservation given back, and the error thrown.
   * Resolves with the row when it is running already.
   */
  start(uid: string, options?: { signal?: AbortSignal; start?: CreateVm['start'] }): Promise<EnvironmentRow>;
  /** Legal in every state; calls at once share one. Resolves when every trace on the host is gone and the row is `destroyed` (or was gone already). `destroyMs` is the host's own figure. */
  destroy(uid: string, reason?: string): Promise<{ destroyMs: number | undefined }>;
  get(db: Queryable, uid: string): Promise<EnvironmentRow | undefined>;
  /** The client of the host that it is on. */
  hostOf(environment: EnvironmentRow): Promise<HostClient>;
}
