/** What the routes ask of runs. */
import type { CreateRun, ListRuns, Run } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import type { Db } from '../db/db.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import type { EventHub } from '../events/events.ts';
import { cutPage } from '../http/pages.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { findAnswer } from '../idempotency/idempotency-store.ts';
import type { RateStanding } from '../quotas/quotas.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { requireEnabled } from '../tenants/tenant-store.ts';
import { awaitRun } from './await-run.ts';
import { cancelRun, runNotFound } from './cancel-run.ts';
import { createRun } from './create-run.ts';
import {
  countOutputs,
  findOutput,
  findRun,
  listRuns,
  outputsOf,
  type RunFilter,
  type RunOutputRow,
  type RunRecord,
  tenantOfRun,
} from './run-reads.ts';
import { type SignOutput, toRun } from './run-view.ts';
import type { RunWorker } from './run-worker.ts';

export interface RunServiceContext {
  db: Db;
  sealer: Sealer;
  hub: EventHub;
  objectStore: ObjectStore;
  environments: EnvironmentService;
  worker: RunWorker;
  retentionMs: number;
}

export interface CreateOptions {
  tenantId: string;
  body: CreateRun;
  idempotent: IdempotentRequest | undefined;
  receivedAt: number;
  sign: SignOutput;
  /** Ends the waiting of `wait: true`. */
  signal: AbortSignal;
  /** Hears how the rate of creates stands, where there is a limit. */
  onCreateRate?: ((rate: RateStanding) => void) | undefined;
}

/** Outputs on one page of a list; a page is cut short before it carries more. */
const MAX_LISTED_OUTPUTS = 2_000;

export class RunService {
  readonly #context: RunServiceContext;

  constructor(context: RunServiceContext) {
    this.#context = context;
  }

  /** `ended`: the run waited for. `replayed`: the key had been used for it before. */
  async create(options: CreateOptions): Promise<{ run: Run; ended: boolean; replayed: boolean }> {
    const admitted = await this.#admit(options);
    if (options.body.wait !== true) return { ...admitted, ended: false };
    const record = await awaitRun(this.#context, admitted.run.id, options.signal);
    if (record === undefined) throw runNotFound(admitted.run.id);
    return { run: await this.#show(record, options.sign), ended: true, replayed: admitted.replayed };
  }

  async #admit(options: CreateOptions): Promise<{ run: Run; replayed: boolean }> {
    const { db } = this.#context;
    const { idempotent, sign } = options;
    for (;;) {
      const earlier = idempotent === undefined ? undefined : await findAnswer(db.query, idempotent);
      if (earlier !== undefined) return { run: earlier.response as Run, replayed: true }; // recorded below, and only there
      const show = (record: RunRecord) => toRun(record, [], sign);
      const created = await createRun(this.#context, { ...options, show });
      if (created !== undefined) return { run: await show(created), replayed: false };
    }
  }

  async get(tenantId: string, runId: string, sign: SignOutput): Promise<Run> {
    return this.#show(await this.find(tenantId, runId), sign);
  }

  /** 404 when it does not exist, or is another tenant's. */
  async find(tenantId: string, runId: string): Promise<RunRecord> {
    const record = await findRun(this.#context.db.query, runId, tenantId);
    if (record === undefined) throw runNotFound(runId);
    return record;
  }

  async list(filter: RunFilter, limit: number, sign: SignOutput): Promise<ListRuns> {
    const { db } = this.#context;
    const records = await listRuns(db.query, filter, limit + 1);
    const shown = cutAtOutputs(records.slice(0, limit), await countOutputs(db.query, idsOf(records)));
    const { page, next_cursor } = cutPage(records, shown, (record) => ({ id: record.id }));
    const outputs = await outputsOf(db.query, idsOf(page));
    const outputsById = new Map(page.map(({ id }) => [id, outputs.filter((output) => output.run_id === id)]));
    const runs = await Promise.all(page.map((record) => toRun(record, outputsById.get(record.id) ?? [], sign)));
    return { runs, ...(next_cursor === undefined ? {} : { next_cursor }) };
  }

  /** As it is once the cancellation is asked for: perhaps on its way to `cancelled` still. */
  async cancel(tenantId: string, runId: string, sign: SignOutput): Promise<Run> {
    await cancelRun(this.#context.db, tenantId, runId, this.#context.retentionMs);
    return this.get(tenantId, runId, sign);
  }

  async outputs(tenantId: string, runId: string): Promise<RunOutputRow[]> {
    await this.find(tenantId, runId);
    return outputsOf(this.#context.db.query, [runId]);
  }

  /** Undefined: no such output. */
  output(runId: string, which: { path: string } | { position: number }): Promise<RunOutputRow | undefined> {
    return findOutput(this.#context.db.query, runId, which);
  }

  /** Without a tenant: the caller has proved its right by a signature, which says nothing of what became of the tenant. */
  async signedOutput(runId: string, position: number): Promise<RunOutputRow | undefined> {
    const { query } = this.#context.db;
    const tenantId = await tenantOfRun(query, runId);
    if (tenantId === undefined) return undefined;
    await requireEnabled(query, tenantId);
    return findOutput(query, runId, { position });
  }

  async #show(record: RunRecord, sign: SignOutput): Promise<Run> {
    return toRun(record, await outputsOf(this.#context.db.query, [record.id]), sign);
  }
}

const idsOf = (records: readonly RunRecord[]): string[] => records.map(({ id }) => id);

/** How many of these fit on a page; at least one. */
function cutAtOutputs(records: readonly RunRecord[], counts: ReadonlyMap<string, number>): number {
  let total = 0;
  const cut = records.findIndex(({ id }) => {
    total += counts.get(id) ?? 0;
    return total > MAX_LISTED_OUTPUTS;
  });
  return cut === -1 ? records.length : Math.max(1, cut);
}
