/**
 * Which commands there are and where to read them: of the live environment of an id at its host, whatever that does; of those of the same id that are gone, the newest
 * first, in their archives. Needs no running VM.
 */
import { AppError } from '@fuse/contract';
import type { HostExec } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import type { EnvironmentRow } from '../db/schema.ts';
import { isGone } from '../environments/environment.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import { environmentById, environmentByUid } from '../environments/environment-store.ts';
import { noteLoss } from '../environments/note-loss.ts';
import { ArchiveSource } from './exec-archive.ts';
import { type ExecSource, HostSource, isNotFound } from './exec-source.ts';
import { goneEnvironments } from './gone-environments.ts';

const LOOK_AGAIN_MS = 100;
/** How long the end of a destruction is waited for: until then its execs are nowhere. */
const DESTRUCTION_MS = 30_000;

export interface FoundExec {
  row: EnvironmentRow;
  source: ExecSource;
  exec: HostExec;
}

export class ExecReads {
  readonly #context: EnvironmentContext;

  constructor(context: EnvironmentContext) {
    this.#context = context;
  }

  /** Of the live one, else of the one that went last; in the order of their start. */
  async list(tenantId: string, id: string, signal: AbortSignal): Promise<HostExec[]> {
    const [row] = await this.#candidates(tenantId, id, signal);
    if (row === undefined) throw new AppError('not_found', `vm ${id} not found`);
    try {
      return await this.#in(row, signal, (source) => source.list(signal));
    } catch (error) {
      if (isNotFound(error)) return []; // its VM was never made, or nothing of it is left
      throw error;
    }
  }

  async find(tenantId: string, id: string, execId: string, signal: AbortSignal): Promise<FoundExec> {
    const rows = await this.#candidates(tenantId, id, signal);
    if (rows.length === 0) throw new AppError('not_found', `vm ${id} not found`);
    let failure: unknown;
    for (const row of rows) {
      try {
        return await this.#in(row, signal, (source) => this.#foundIn(row, source, execId, signal));
      } catch (error) {
        if (!isGone(row.state) && !isNotFound(error)) throw error;
        if (!isNotFound(error)) failure ??= error; // an older one may have it
      }
    }
    throw failure ?? new AppError('not_found', `exec ${execId} of vm ${id} not found`);
  }

  /** The same exec again, wherever it is by now. `vm_lost`: nothing of it is left. */
  async findAgain({ row, exec }: FoundExec, signal: AbortSignal): Promise<FoundExec> {
    const now = await this.#settled(row.uid, signal);
    if (now === undefined) throw new AppError('vm_lost', 'its environment is gone');
    try {
      return await this.#in(now, signal, (source) => this.#foundIn(now, source, exec.id, signal));
    } catch (error) {
      if (isNotFound(error)) throw new AppError('vm_lost', `its environment is ${now.state}`, { cause: error });
      throw error;
    }
  }

  /** When its VM died its environment says so before the caller hears of the exec. */
  async noteLoss(row: EnvironmentRow, error = 'the end of the command is not known'): Promise<void> {
    await noteLoss(this.#context, row, new AppError('vm_lost', error));
  }

  async #foundIn(row: EnvironmentRow, source: ExecSource, execId: string, signal: AbortSignal): Promise<FoundExec> {
    return { row, source, exec: await source.get(execId, 0, signal) };
  }

  async #in<T>(row: EnvironmentRow, signal: AbortSignal, work: (source: ExecSource) => Promise<T>): Promise<T> {
    const archived = row.archive_key === null ? undefined : () => this.#inArchive(row, signal, work);
    if (row.state === 'destroyed') return archived === undefined ? notThere() : archived();
    const onHost = () => this.#onHost(row, signal, work);
    if (archived === undefined) return onHost();
    // Of one whose VM died its key is there before the object is, and its host has it until then.
    return archived().catch(unlessFound(onHost)).catch(unlessFound(archived));
  }

  async #inArchive<T>(row: EnvironmentRow, signal: AbortSignal, work: (source: ExecSource) => Promise<T>): Promise<T> {
    return work(await ArchiveSource.open(this.#context.archiving.objectStore, row.archive_key ?? '', signal));
  }

  async #onHost<T>(row: EnvironmentRow, signal: AbortSignal, work: (source: ExecSource) => Promise<T>): Promise<T> {
    const { hosts, hostRetryMs } = this.#context;
    try {
      return await work(new HostSource(await hosts.client(row.host_id), row.vm_id, hostRetryMs));
    } catch (error) {
      const now = isNotFound(error) ? await this.#settled(row.uid, signal) : undefined;
      // Destroyed, or archived, while we looked.
      if (now === undefined || (now.archive_key === row.archive_key && now.state === row.state)) throw error;
      return this.#in(now, signal, work);
    }
  }

  async #candidates(tenantId: string, id: string, signal: AbortSignal): Promise<EnvironmentRow[]> {
    const { query } = this.#context.db;
    const live = await environmentById(query, tenantId, id);
    if (live?.state === 'destroying') await this.#settled(live.uid, signal);
    const gone = await goneEnvironments(query, tenantId, id);
    return live === undefined || live.state === 'destroying' ? gone : [live, ...gone];
  }

  /** Not while it is being destroyed: its VM may be gone already, and its archive not known yet. */
  async #settled(uid: string, signal: AbortSignal): Promise<EnvironmentRow | undefined> {
    const giveUpAt = performance.now() + DESTRUCTION_MS;
    for (;;) {
      const row = await environmentByUid(this.#context.db.query, uid);
      if (row?.state !== 'destroying') return row;
      if (performance.now() > giveUpAt)
        throw new AppError('unavailable', `vm ${row.id} is being destroyed`, { retryAfterSeconds: 5 });
      await sleep(LOOK_AGAIN_MS, signal);
    }
  }
}

function notThere(): never {
  throw new AppError('not_found', 'nothing of it is left');
}

const unlessFound =
  <T>(next: () => Promise<T>) =>
  (error: unknown): Promise<T> => {
    if (isNotFound(error)) return next();
    throw error;
  };
