/** Snapshots of this host on their way to the object store, and from there to this host. */
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { AppError, invalidField } from '@fuse/contract';
import type { ExportedSnapshot, ExportSnapshot, SnapshotChunks } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { type Logger, withDeadline } from '@fuse/runtime';
import { requireFreeDisk } from '../../vms/disk-full.ts';
import { fileOfPart, openSnapshotParts } from '../snapshot-parts.ts';
import type { Snapshots } from '../snapshots.ts';
import type { HeldSnapshot } from '../stored-snapshot.ts';
import { CHUNK_BYTES } from './chunk.ts';
import { downloadParts } from './download-parts.ts';
import { chunksOf, placesOf, planExport } from './export-plan.ts';
import {
  decodeManifest,
  encodeManifest,
  MAX_MANIFEST_BYTES,
  type ManifestContent,
  type ManifestPart,
} from './manifest.ts';
import { uploadChunks } from './upload-chunks.ts';

export interface SnapshotTransferOptions {
  snapshots: Snapshots;
  store: ObjectStore;
  log: Logger;
  /** Where snapshots are kept, for how much room is left there. */
  directory: string;
  storageReserveBytes: number;
}

const IMPORT_MS = 3_600_000;
/** A snapshot never changes, so what it consists of is not found out again for the upload that follows. */
const MAX_PLANS = 4;

export class SnapshotTransfer {
  readonly #options: SnapshotTransferOptions;
  readonly #plans = new Map<string, ManifestPart[]>();

  constructor(options: SnapshotTransferOptions) {
    this.#options = options;
  }

  async chunks(snapshotId: string, signal: AbortSignal): Promise<SnapshotChunks> {
    await using held = await this.#options.snapshots.hold(snapshotId, signal);
    return { chunks: chunksOf(await this.#plan(held, AbortSignal.any([signal, held.signal]))) };
  }

  /** What is missing, then the manifest. Nothing that was uploaded is taken back when it fails. */
  async export(snapshotId: string, order: ExportSnapshot, signal: AbortSignal): Promise<ExportedSnapshot> {
    const { snapshots, store } = this.#options;
    const log = this.#options.log.child({ snapshot_id: snapshotId });
    await using held = await snapshots.hold(snapshotId, signal);
    const stop = AbortSignal.any([signal, held.signal]);
    const plan = await this.#plan(held, stop);
    await using parts = await openSnapshotParts(held);
    const missing = placesOf(plan, parts.parts, order.missing);
    if (missing.length < new Set(order.missing).size)
      throw invalidField('missing', 'names a chunk that the snapshot does not have');
    const manifest = encodeManifest({
      chunk_prefix: order.chunk_prefix,
      chunk_bytes: CHUNK_BYTES,
      snapshot: aboutOf(held),
      parts: plan,
    });
    const uploaded = await uploadChunks({ store, prefix: order.chunk_prefix, log }, missing, stop);
    await store.put(order.manifest_key, manifest, { contentType: 'application/json', signal: stop });
    log.info({ chunks: uploaded.length, manifest_bytes: manifest.length }, 'snapshot exported');
    return { uploaded, manifest_bytes: manifest.length };
  }

  /**
   * Resolves once it may be used here. Those who ask at the same time share one download, which goes on when they leave. Of a damaged or
   * incomplete export (`integrity_error`) nothing is left; `not_found` when there is no manifest.
   */
  async import(wanted: { snapshotId: string; manifestKey: string }, signal: AbortSignal): Promise<void> {
    const { snapshots, store, log } = this.#options;
    const manifest = await this.#manifest(wanted, signal);
    const { directory, storageReserveBytes } = this.#options;
    await requireFreeDisk(directory, storageReserveBytes + bytesOf(manifest));
    const adding = snapshots.add(manifest.snapshot, async (making, stop) => {
      const from = performance.now();
      const within = AbortSignal.any([stop, AbortSignal.timeout(IMPORT_MS)]);
      await downloadParts({ store, pathOf: (part) => join(making, fileOfPart[part]) }, manifest, within);
      const ms = Math.round(performance.now() - from);
      log.info({ snapshot_id: wanted.snapshotId, bytes: bytesOf(manifest), ms }, 'snapshot imported');
      return { files: manifest.parts.map(({ name }) => fileOfPart[name]) };
    });
    await withDeadline(IMPORT_MS, 'importing the snapshot', () => adding, signal);
  }

  async #manifest(
    { snapshotId, manifestKey }: { snapshotId: string; manifestKey: string },
    signal: AbortSignal,
  ): Promise<ManifestContent> {
    const { info, body } = await this.#options.store.get(manifestKey, { signal });
    if (info.sizeBytes > MAX_MANIFEST_BYTES) {
      body.destroy();
      throw new AppError('integrity_error', 'the manifest of the snapshot is larger than any that is written');
    }
    const manifest = decodeManifest(await buffer(body));
    if (manifest.snapshot.id !== snapshotId)
      throw new AppError('integrity_error', `the manifest is of snapshot "${manifest.snapshot.id}"`);
    return manifest;
  }

  async #plan(held: HeldSnapshot, signal: AbortSignal): Promise<ManifestPart[]> {
    const { id } = held.record;
    const known = this.#plans.get(id);
    if (known !== undefined) return known;
    await using parts = await openSnapshotParts(held);
    const plan = await planExport(parts, signal);
    const [oldest] = this.#plans.keys();
    if (this.#plans.size >= MAX_PLANS && oldest !== undefined) this.#plans.delete(oldest);
    this.#plans.set(id, plan);
    return plan;
  }
}

function aboutOf({ record }: HeldSnapshot): ManifestContent['snapshot'] {
  const { id, tag, vm_id, image, shape, made_on, include_memory, network_card, parent_id, created_at } = record;
  return { id, tag, vm_id, image, shape, made_on, include_memory, network_card, parent_id, created_at };
}

/** The most that it takes on disk. */
const bytesOf = ({ parts, chunk_bytes }: ManifestContent): number =>
  parts.reduce((sum, { chunks }) => sum + chunks.length * chunk_bytes, 0);
