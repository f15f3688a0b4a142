/** For tests: snapshots made of named chunks, and a host that exports them over HTTP to a real object store. */
import { createHash, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { ExportSnapshot } from '@fuse/host-protocol';
import { type ObjectStore, openObjectStore } from '@fuse/object-store';
import { Disposables, newId } from '@fuse/runtime';
import { startS3Server, temporaryDirectory } from '@fuse/testing';
import { type Db, jsonb, now } from '../../db/db.ts';
import { quiet } from '../../db/test-database.ts';

export const stores = ['file', 's3'] as const;

export async function openTestStore(kind: (typeof stores)[number]): Promise<AsyncDisposable & { store: ObjectStore }> {
  const disposables = new Disposables(quiet);
  const config =
    kind === 's3'
      ? disposables.add('S3 server', await startS3Server()).config
      : { kind, directory: disposables.add('directory', await temporaryDirectory()).path };
  const store = disposables.add('store', await openObjectStore(config));
  return { store, [Symbol.asyncDispose]: () => disposables[Symbol.asyncDispose]() };
}

/** The content of a chunk by its name; its bytes are its length, since the tests' host does not compress. */
export const chunkBytes = (name: string): Buffer => Buffer.from(`chunk ${name} `.repeat(20));
export const sumOf = (name: string): string => createHash('sha256').update(chunkBytes(name)).digest('hex');

export async function insertSnapshot(db: Db, hostId: string | null, id = newId('snap')): Promise<string> {
  await db.query
    .insertInto('snapshots')
    .values({
      id,
      vm_id: 'fuse-t',
      task_id: 't',
      host_vm_id: 'vm-t',
      host_id: hostId,
      state: 'ready',
      include_memory: true,
      image: 'base',
      spec: jsonb({}),
      cpus: 1,
      ram_mb: 256,
      storage_gb: 1,
      export_state: 'pending',
      export_requested_at: now,
    })
    .execute();
  return id;
}

export const snapshotRow = (db: Db, id: string) =>
  db.query.selectFrom('snapshots').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

export class ExportingHost implements AsyncDisposable {
  /** Names of chunks by snapshot. */
  readonly snapshots = new Map<string, string[]>();
  /** How often each chunk was uploaded, by sha256. */
  readonly uploads = new Map<string, number>();
  /** Called before each upload; what it throws breaks the connection. */
  beforeUpload: (sha256: string) => void | Promise<void> = () => {};
  /** Answered instead. */
  refusal: { status: number; code: string } | undefined;
  readonly id = `host-${randomBytes(4).toString('hex')}`;
  readonly #store: ObjectStore;
  readonly #server = createServer((request, response) => {
    this.#serve(request, response).catch(() => response.destroy());
  });

  private constructor(store: ObjectStore) {
    this.#store = store;
  }

  static async start(db: Db, store: ObjectStore): Promise<ExportingHost> {
    const host = new ExportingHost(store);
    await new Promise<void>((resolve) => host.#server.listen(0, '127.0.0.1', resolve));
    const { port } = host.#server.address() as AddressInfo; // it listens on a port
    await db.query
      .insertInto('hosts')
      .values({
        ...{ id: host.id, url: `http://127.0.0.1:${port}`, token: null, region: null, backend: 'qemu' },
        ...{ cpus: 4, ram_mb: 4_096, storage_gb: 64, vm_count: 8 },
      })
      .execute();
    return host;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request);
    const [, id = '', action] = /^\/v1\/snapshots\/([^/]+)\/(chunks|export)$/.exec(request.url ?? '') ?? [];
    const names = this.snapshots.get(id) ?? [];
    if (this.refusal !== undefined) {
      const { status, code } = this.refusal;
      return answer(response, status, { error: { code, message: `refused: ${code}` } });
    }
    if (action === 'chunks') {
      const chunks = names.map((name) => ({ sha256: sumOf(name), size_bytes: chunkBytes(name).length }));
      return answer(response, 200, { chunks });
    }
    const order = ExportSnapshot.parse(JSON.parse(body));
    const uploaded = [];
    for (const sha256 of order.missing) {
      await this.beforeUpload(sha256);
      const bytes = chunkBytes(names.find((name) => sumOf(name) === sha256) ?? 'none');
      await this.#store.put(`${order.chunk_prefix}/${sha256.slice(0, 2)}/${sha256}`, bytes);
      this.uploads.set(sha256, (this.uploads.get(sha256) ?? 0) + 1);
      uploaded.push({ sha256, stored_bytes: bytes.length });
    }
    const manifest = Buffer.from(JSON.stringify(names));
    await this.#store.put(order.manifest_key, manifest);
    return answer(response, 200, { uploaded, manifest_bytes: manifest.length });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
