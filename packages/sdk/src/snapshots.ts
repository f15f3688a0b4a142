import {
  type CreateSnapshot,
  FREED_HOST_BYTES_HEADER,
  FREED_STORE_BYTES_HEADER,
  ResolvedSnapshot,
  Snapshot,
  type SnapshotState,
} from '@fuse/contract';
import { z } from 'zod';
import { type KeyedOptions, onceUnder } from './once.ts';
import { ALL_PAGES_LIMIT, allPages, listOf, nextCursor } from './pages.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';

const SnapshotsPage = z.object({ snapshots: listOf(Snapshot), next_cursor: nextCursor });

/** All that are given must match; an unknown value matches nothing. */
export interface ListSnapshotsOptions extends CallOptions {
  /** Of this environment, which may be gone. */
  vmId?: string;
  taskId?: string;
  tenantId?: string;
  state?: SnapshotState;
  mode?: string;
  name?: string;
  layerKey?: string;
  /** `amd64`, `arm64`, or as `uname -m` spells them. */
  arch?: string;
  limit?: number;
  cursor?: string;
}

export interface DeleteSnapshotOptions extends CallOptions {
  /** Also when another snapshot names it as its parent. Nothing of that one is lost. */
  force?: boolean;
}

export interface RestoreSnapshotOptions extends CallOptions {
  /** When its memory does not fit the host any more (another VMM, CPU model or kernel), boot from its disk alone. */
  fallback?: 'disk';
}

/** Bytes that were freed at once; undefined when the answer that said so was lost. */
export interface DeletedSnapshot {
  freedHostBytes: number | undefined;
  freedStoreBytes: number | undefined;
}

/** Memory, devices and disk of one instant of an environment. They outlive it. */
export class Snapshots {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Resolves when it is `ready`: whole and safe on its host's disk. The environment stands still for `pause_ms` of that time. Without an
   * idempotency key it is never sent twice: after a lost answer list the environment's snapshots.
   */
  create(environmentId: string, request: CreateSnapshot = {}, options: KeyedOptions = {}): Promise<Snapshot> {
    return this.#transport.json(Snapshot, {
      method: 'POST',
      path: `/v1/environments/${encodeURIComponent(environmentId)}/snapshots`,
      json: request,
      ...onceUnder(options),
    });
  }

  get(id: string, options: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json(Snapshot, { method: 'GET', path: pathOf(id), repeat: 'freely', ...options });
  }

  /** The newest first. */
  list(options: Omit<ListSnapshotsOptions, 'limit' | 'cursor'> = {}): Promise<Snapshot[]> {
    return allPages(async (cursor) => {
      const page = await this.listPage({
        ...options,
        limit: ALL_PAGES_LIMIT,
        ...(cursor === undefined ? {} : { cursor }),
      });
      return { items: page.snapshots, nextCursor: page.nextCursor };
    });
  }

  async listPage(
    options: ListSnapshotsOptions = {},
  ): Promise<{ snapshots: Snapshot[]; nextCursor: string | undefined }> {
    const { vmId, taskId, tenantId, state, mode, name, layerKey, arch, limit, cursor, signal } = options;
    const page = await this.#transport.json(SnapshotsPage, {
      method: 'GET',
      path: '/v1/snapshots',
      query: {
        vm_id: vmId,
        task_id: taskId,
        tenant_id: tenantId,
        state,
        mode,
        name,
        layer_key: layerKey,
        arch,
        limit,
        cursor,
      },
      repeat: 'freely',
      signal,
    });
    return { snapshots: page.snapshots, nextCursor: page.next_cursor };
  }

  /** The newest ready one that was made under this layer key for this architecture; null when there is none. */
  async resolve(layerKey: string, arch: string, options: CallOptions = {}): Promise<Snapshot | null> {
    const answer = await this.#transport.json(ResolvedSnapshot, {
      method: 'GET',
      path: '/v1/snapshots/resolve',
      query: { layer_key: layerKey, arch },
      repeat: 'freely',
      ...options,
    });
    return answer.found ? answer.snapshot : null;
  }

  async delete(id: string, { force, signal }: DeleteSnapshotOptions = {}): Promise<DeletedSnapshot> {
    const headers = await this.#transport.headers({
      method: 'DELETE',
      path: pathOf(id),
      query: { force: force === true ? 'true' : undefined },
      repeat: 'freely',
      signal,
    });
    return {
      freedHostBytes: byteCount(headers.get(FREED_HOST_BYTES_HEADER)),
      freedStoreBytes: byteCount(headers.get(FREED_STORE_BYTES_HEADER)),
    };
  }

  /** Its environment is again what it was then, under the same id; what it did since is lost. Never sent twice. */
  restore(id: string, { fallback, signal }: RestoreSnapshotOptions = {}): Promise<void> {
    return this.#transport.none({
      method: 'POST',
      path: pathOf(id),
      query: { action: 'restore', fallback },
      repeat: 'if-unsent',
      signal,
    });
  }
}

const pathOf = (id: string): string => `/v1/snapshots/${encodeURIComponent(id)}`;

const byteCount = (header: string | null): number | undefined =>
  header !== null && /^\d+$/.test(header) ? Number(header) : undefined;
