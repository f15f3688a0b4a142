/**
 * Files of running environments: what a caller asks goes to the host that has the VM, and its bytes come back as they are read, none of them kept
 * here. While that goes on, the environment is not idle.
 */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { AppError, type FileOperation, type FileRequest, type FileResponse, type TarIn } from '@fuse/contract';
import type { GuestFileWritten } from '@fuse/host-protocol';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { touch } from '../environments/environment-store.ts';
import { noteLoss } from '../environments/note-loss.ts';
import { TOUCH_GRAIN_MS } from '../environments/ready.ts';
import type { HostClient } from '../hosts/host-client.ts';
import { asFileError } from './file-errors.ts';

const TOUCH_MS = 15_000;
const MAX_TRIES = 3;

export interface Target {
  tenantId: string;
  /** Of the environment. */
  id: string;
  /** Aborting it ends what the guest does. */
  signal: AbortSignal;
}

export interface Upload {
  query: URLSearchParams;
  /** Never destroyed here. */
  body: Readable;
  sizeBytes: number | undefined;
}

interface Vm {
  client: HostClient;
  vmId: string;
}

export class GuestFileService {
  readonly #context: EnvironmentContext;
  readonly #environments: EnvironmentService;

  constructor(context: EnvironmentContext, environments: EnvironmentService) {
    this.#context = context;
    this.#environments = environments;
  }

  /** Not read yet. One that ends early, because the guest or its VM did, fails. */
  async open(target: Target, what: 'file' | 'tar' | 'watch', query: URLSearchParams): Promise<IncomingMessage> {
    const { signal } = target;
    const open = ({ client, vmId }: Vm) => client.files.open(vmId, { what, query, signal });
    return this.#again(target, async (row) => {
      const release = this.#inUse(row);
      try {
        const body = await this.#onVm(row, open);
        body.once('error', () => void this.#notePossibleLoss(row));
        body.once('close', release);
        return body;
      } catch (error) {
        release();
        throw error;
      }
    });
  }

  write(target: Target, upload: Upload): Promise<GuestFileWritten> {
    const { signal } = target;
    return this.#once(target, ({ client, vmId }) => client.files.write(vmId, { ...upload, signal }));
  }

  extract(target: Target, upload: Upload): Promise<TarIn> {
    const { signal } = target;
    return this.#once(target, ({ client, vmId }) => client.files.extract(vmId, { ...upload, signal }));
  }

  operate<Name extends FileOperation>(
    target: Target,
    name: Name,
    request: FileRequest<Name>,
  ): Promise<FileResponse<Name>> {
    const { signal } = target;
    return this.#again(target, (row) =>
      this.#using(row, ({ client, vmId }) => client.files.operate(vmId, name, { request, signal })),
    );
  }

  /** What has a body is not begun anew: some of it may have been taken. */
  async #once<T>(target: Target, work: (vm: Vm) => Promise<T>): Promise<T> {
    return this.#using(await this.#ready(target), work);
  }

  /** Refused because it was paused between the look and the call, nothing was done: it is made ready once more. */
  async #again<T>(target: Target, work: (row: EnvironmentRow) => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      const row = await this.#ready(target);
      try {
        return await work(row);
      } catch (error) {
        const isPaused = error instanceof AppError && error.code === 'conflict' && error.details?.state !== undefined;
        if (!isPaused || tries >= MAX_TRIES || (await this.#isAsItWas(row))) throw error;
      }
    }
  }

  async #ready({ tenantId, id, signal }: Target): Promise<EnvironmentRow> {
    return this.#environments.ready(await this.#environments.find(tenantId, id), signal);
  }

  async #using<T>(row: EnvironmentRow, work: (vm: Vm) => Promise<T>): Promise<T> {
    const release = this.#inUse(row);
    try {
      return await this.#onVm(row, work);
    } finally {
      release();
    }
  }

  async #onVm<T>(row: EnvironmentRow, work: (vm: Vm) => Promise<T>): Promise<T> {
    try {
      const client = await this.#context.hosts.client(row.host_id);
      return await work({ client, vmId: row.vm_id });
    } catch (error) {
      const known = await this.#meaning(row, error);
      await noteLoss(this.#context, row, known);
      throw asFileError(row, known);
    }
  }

  /** A host that has lost the VM says `not_found` as a guest does of a file, but names no path. */
  async #meaning(row: EnvironmentRow, error: unknown): Promise<unknown> {
    if (!(error instanceof AppError) || error.code !== 'not_found' || error.details?.path !== undefined) return error;
    const client = await this.#context.hosts.client(row.host_id);
    return client.vm(row.vm_id).then(
      () => error,
      (gone: unknown) =>
        gone instanceof AppError && gone.code === 'not_found'
          ? new AppError('vm_lost', 'its host does not know it', { cause: gone })
          : error,
    );
  }

  async #notePossibleLoss(row: EnvironmentRow): Promise<void> {
    await noteLoss(this.#context, row, new AppError('vm_lost', 'a stream was cut'));
  }

  async #isAsItWas(row: EnvironmentRow): Promise<boolean> {
    return (await this.#environments.get(this.#context.db.query, row.uid))?.version === row.version;
  }

  /** Until the returned function is called. */
  #inUse(row: EnvironmentRow): () => void {
    const stamp = () => void touch(this.#context.db.query, row.uid).catch(() => {}); // only the idle clock
    if (Math.abs(Date.now() - row.last_activity_at.getTime()) > TOUCH_GRAIN_MS) stamp();
    const fromMs = performance.now();
    const stamping = setInterval(stamp, TOUCH_MS);
    return () => {
      clearInterval(stamping);
      if (performance.now() - fromMs > TOUCH_GRAIN_MS) stamp();
    };
  }
}
