/**
 * Exports snapshots in the background, a bounded number at a time. The row says that one is wanted; whoever leases it drives it, and what
 * a process that died left behind is taken over when its lease is out.
 */
import { AppError } from '@fuse/contract';
import { newId, sleep } from '@fuse/runtime';
import type { ExportConfig } from './export-config.ts';
import {
  type ClaimedExport,
  claimExports,
  endAllExports,
  endExportsOfErrors,
  giveUpExports,
  renewExports,
  requestEveryExport,
} from './export-leases.ts';
import { type ExportContext, exportSnapshot } from './export-snapshot.ts';
import { LostExport, recordFailedExport } from './export-store.ts';

const MAX_RETRY_MS = 300_000;
/** What no other try can change: damaged, or not on its host any more. */
const FINAL = new Set(['integrity_error', 'not_found', 'payload_too_large']);

export interface SnapshotExporterOptions extends ExportContext {
  config: ExportConfig;
}

interface Active {
  stop: AbortController;
  ended: Promise<void>;
}

export class SnapshotExporter implements AsyncDisposable {
  readonly owner = newId('exporter');
  readonly #options: SnapshotExporterOptions;
  readonly #active = new Map<string, Active>();
  readonly #stopped = new AbortController();
  #loops: Promise<unknown> = Promise.resolve();

  constructor(options: SnapshotExporterOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { db, config } = this.#options;
    if (db.kind === 'pglite') await endAllExports(db.query);
    this.#loops = Promise.all([
      this.#loop('looking for exports', () => this.#takeUp(), config.lookEveryMs),
      this.#loop('renewing leases of exports', () => this.#renew(), config.leaseMs / 3),
    ]);
  }

  async #loop(what: string, work: () => Promise<void>, everyMs: number): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      await work().catch((error: unknown) => this.#options.log.warn({ err: error }, `${what} failed`));
      await sleep(everyMs, signal).catch(() => {}); // stopped
    }
  }

  async #takeUp(): Promise<void> {
    const { db, config } = this.#options;
    if (config.when === 'always') await requestEveryExport(db.query);
    await endExportsOfErrors(db.query);
    const limit = config.maxExports - this.#active.size;
    if (limit <= 0) return;
    const claimed = await claimExports(db.query, { owner: this.owner, leaseMs: config.leaseMs, limit });
    for (const each of claimed) this.#begin(each);
  }

  #begin(claimed: ClaimedExport): void {
    const stop = new AbortController();
    if (this.#stopped.signal.aborted) stop.abort(this.#stopped.signal.reason);
    const ended = this.#drive(claimed, stop.signal)
      .catch((error: unknown) =>
        this.#options.log.error({ err: error, snapshot_id: claimed.id }, 'an export was left to its lease'),
      )
      .finally(() => this.#active.delete(claimed.id));
    this.#active.set(claimed.id, { stop, ended });
  }

  async #drive(claimed: ClaimedExport, signal: AbortSignal): Promise<void> {
    try {
      await exportSnapshot(this.#options, claimed, this.owner, signal);
    } catch (error) {
      if (signal.aborted || error instanceof LostExport) return;
      await this.#recordFailure(claimed, error).catch((failure: unknown) => {
        if (!(failure instanceof LostExport)) throw failure;
      });
    }
  }

  async #recordFailure({ id, export_tries }: ClaimedExport, error: unknown): Promise<void> {
    const { db, config, log } = this.#options;
    const code = error instanceof AppError ? error.code : 'internal';
    const message = error instanceof AppError ? error.message : 'internal error';
    const isLast = FINAL.has(code) || export_tries + 1 >= config.maxTries;
    const retryMs = isLast ? undefined : Math.min(config.firstRetryMs * 2 ** export_tries, MAX_RETRY_MS);
    log.warn({ err: error, snapshot_id: id, tries: export_tries + 1, retry_ms: retryMs }, 'an export failed');
    const isDamaged = code === 'integrity_error';
    await db.transaction((tx) =>
      recordFailedExport(tx, { snapshotId: id, owner: this.owner }, { message, retryMs, isDamaged }),
    );
  }

  async #renew(): Promise<void> {
    const ids = [...this.#active.keys()];
    const { db, config } = this.#options;
    const kept = await renewExports(db.query, { owner: this.owner, ids, leaseMs: config.leaseMs });
    for (const id of ids) if (!kept.has(id)) this.#active.get(id)?.stop.abort(new LostExport('its lease was lost'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const reason = new Error('the orchestrator stops');
    this.#stopped.abort(reason);
    for (const { stop } of this.#active.values()) stop.abort(reason);
    await this.#loops;
    for (const { stop } of this.#active.values()) stop.abort(reason);
    await Promise.all([...this.#active.values()].map(({ ended }) => ended));
    await giveUpExports(this.#options.db.query, this.owner).catch(() => {}); // the leases end by themselves
  }
}
