/** The snapshots of a test host: copies of a VM's files, usable at once, durable when nothing holds that up. Processes are not in them. */
import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { AppError } from '@fuse/contract';
import {
  type ExportedSnapshot,
  type ExportSnapshot,
  type HostSnapshot,
  type HostVm,
  type SnapshotChunks,
  type SnapshotSource,
  TakeSnapshot,
} from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { z } from 'zod';

interface Kept {
  snapshot: HostSnapshot;
  root: string;
}

const Manifest = z.object({
  files: z.array(z.object({ path: z.string(), sha256: z.string(), chunk_key: z.string() })),
});

export class TestHostSnapshots {
  readonly kept = new Map<string, Kept>();
  /** Snapshots whose bytes are not what they were. */
  readonly damaged = new Set<string>();
  /** Those of VMs with a network card. */
  readonly withCard = new Set<string>();
  /** How often each id was really taken. */
  readonly taken = new Map<string, number>();
  /** Awaited between usable and durable; rejecting breaks the snapshot. */
  flushing: (id: string) => Promise<void> = async () => {};
  readonly #objectStore: ObjectStore | undefined;

  constructor(objectStore: ObjectStore | undefined) {
    this.#objectStore = objectStore;
  }

  list(): HostSnapshot[] {
    return [...this.kept.values()].map(({ snapshot }) => snapshot);
  }

  async take(id: string, vm: HostVm, vmRoot: string, body: unknown): Promise<{ status: number; body: HostSnapshot }> {
    const { tag, include_memory } = TakeSnapshot.parse(body);
    const known = this.kept.get(id);
    if (known !== undefined) return { status: 200, body: known.snapshot };
    const root = await copyOf(vmRoot);
    const size = (await filesOf(root)).reduce((sum, { bytes }) => sum + bytes.length, 0);
    const { image, shape } = vm;
    const snapshot: HostSnapshot = {
      id,
      tag,
      state: 'usable',
      vm_id: vm.id,
      image,
      shape,
      include_memory,
      created_at: new Date().toISOString(),
      pause_ms: 1.5,
      size_bytes: size,
      stored_bytes: size,
    };
    this.kept.set(id, { snapshot, root });
    if (vm.network !== undefined) this.withCard.add(id);
    this.taken.set(id, (this.taken.get(id) ?? 0) + 1);
    void this.#flush(id);
    return { status: 201, body: snapshot };
  }

  async #flush(id: string): Promise<void> {
    const become = (changes: Partial<HostSnapshot>) => {
      const kept = this.kept.get(id);
      if (kept !== undefined) kept.snapshot = { ...kept.snapshot, ...changes };
    };
    try {
      await this.flushing(id);
      const files = await filesOf(this.kept.get(id)?.root ?? '');
      become({ state: 'durable', digest: sha256(Buffer.from(JSON.stringify(files.map((file) => file.sha256)))) });
    } catch (error) {
      become({ state: 'broken', error: String(error) });
    }
  }

  get(id: string): HostSnapshot {
    return this.#kept(id).snapshot;
  }

  async delete(id: string): Promise<{ deleted: boolean; freed_bytes: number }> {
    const kept = this.kept.get(id);
    this.kept.delete(id);
    if (kept !== undefined) await rm(kept.root, { recursive: true, force: true });
    return { deleted: kept !== undefined, freed_bytes: kept?.snapshot.size_bytes ?? 0 };
  }

  /** A directory of its own with what the snapshot holds. */
  async open({ snapshot_id: id, manifest_key }: SnapshotSource): Promise<string> {
    if (this.damaged.has(id))
      throw new AppError('integrity_error', `snapshot ${id}: its bytes do not match their digest`);
    const kept = this.kept.get(id);
    if (kept !== undefined)
      return copyOf(kept.root).catch((error: unknown) => {
        if (this.kept.get(id) === kept) throw error;
        throw new AppError('not_found', `no snapshot ${id}`); // deleted meanwhile
      });
    if (manifest_key === undefined) throw new AppError('not_found', `no snapshot ${id}`);
    const root = await mkdtemp(join(tmpdir(), 'fuse-test-vm-'));
    const { files } = Manifest.parse(JSON.parse((await this.#read(manifest_key)).toString('utf8')));
    for (const file of files) {
      await mkdir(dirname(join(root, file.path)), { recursive: true });
      await writeFile(join(root, file.path), await this.#read(file.chunk_key));
    }
    return root;
  }

  async chunks(id: string): Promise<SnapshotChunks> {
    const files = await filesOf(this.#kept(id).root);
    return { chunks: files.map((file) => ({ sha256: file.sha256, size_bytes: file.bytes.length })) };
  }

  async export(id: string, order: ExportSnapshot): Promise<ExportedSnapshot> {
    const keyOf = (sum: string) => `${order.chunk_prefix}/${sum.slice(0, 2)}/${sum}`;
    const files = await filesOf(this.#kept(id).root);
    const uploaded: ExportedSnapshot['uploaded'] = [];
    for (const file of files) {
      if (!order.missing.includes(file.sha256) || uploaded.some((one) => one.sha256 === file.sha256)) continue;
      await this.#store().put(keyOf(file.sha256), file.bytes);
      uploaded.push({ sha256: file.sha256, stored_bytes: file.bytes.length });
    }
    const manifest = { files: files.map(({ path, sha256: sum }) => ({ path, sha256: sum, chunk_key: keyOf(sum) })) };
    const info = await this.#store().put(order.manifest_key, Buffer.from(JSON.stringify(manifest)));
    return { uploaded, manifest_bytes: info.sizeBytes };
  }

  async dispose(): Promise<void> {
    for (const id of [...this.kept.keys()]) await this.delete(id);
  }

  #kept(id: string): Kept {
    const kept = this.kept.get(id);
    if (kept === undefined) throw new AppError('not_found', `no snapshot ${id}`);
    return kept;
  }

  #store(): ObjectStore {
    if (this.#objectStore === undefined) throw new Error('this test host has no object store');
    return this.#objectStore;
  }

  async #read(key: string): Promise<Buffer> {
    return buffer((await this.#store().get(key)).body);
  }
}

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

async function copyOf(from: string): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'fuse-test-vm-'));
  try {
    await cp(from, root, { recursive: true });
  } catch (error) {
    await rm(root, { recursive: true, force: true });
    throw error;
  }
  return root;
}

/** But those of an environment's own (/fuse), which differ each time. */
async function filesOf(root: string): Promise<{ path: string; bytes: Buffer; sha256: string }[]> {
  const found = [];
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || entry.parentPath === join(root, 'fuse')) continue;
    const bytes = await readFile(join(entry.parentPath, entry.name));
    found.push({ path: relative(root, join(entry.parentPath, entry.name)), bytes, sha256: sha256(bytes) });
  }
  return found.sort((a, b) => (a.path < b.path ? -1 : 1));
}
