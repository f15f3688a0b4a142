/**
 * What a start has come to, step by step: each step that is done is an event (`step`), told before something long begins, or with what the environment
 * becomes. Those of runs are measured and not told: a run has events of its own.
 */
import type { EnvironmentEvent } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';
import { type NewEvent, recordEvents } from '../events/events.ts';
import type { StateEventData } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { openStartup } from './environment-secrets.ts';

/** Its VM, from a template or a snapshot; the files that it is given; its script. */
export const stepKeys = ['template', 'restore', 'files', 'script'] as const;
export type StepKey = (typeof stepKeys)[number];
type Step = NonNullable<EnvironmentEvent['step']>;

/** What a start goes through: its place, or the wait for one, then its steps. */
export type StartPhase = 'admit' | 'queue' | StepKey;

/** For the metrics: how long it took, when it went well. */
export async function measured<T>(
  { measurePhase }: Pick<EnvironmentContext, 'measurePhase'>,
  phase: StartPhase,
  work: () => Promise<T>,
): Promise<T> {
  const began = performance.now();
  const result = await work();
  measurePhase?.(phase, (performance.now() - began) / 1_000);
  return result;
}

export class StartSteps {
  readonly #context: EnvironmentContext;
  readonly #row: EnvironmentRow;
  readonly #keys: readonly StepKey[];
  #untold: Step[] = [];

  constructor(context: EnvironmentContext, row: EnvironmentRow) {
    this.#context = context;
    this.#row = row;
    const startup = row.startup === null ? undefined : openStartup(context.sealer, row.startup, row.uid);
    this.#keys = [
      row.seed_snapshot_id === null ? 'template' : 'restore',
      'files',
      ...(startup?.script === undefined ? [] : (['script'] as const)),
    ];
  }

  /** Of its VM. */
  get first(): StepKey {
    return this.#keys[0] ?? 'template';
  }

  async take<T>(key: StepKey, work: () => Promise<T>): Promise<T> {
    const began = performance.now();
    const result = await measured(this.#context, key, work);
    const ms = performance.now() - began;
    if (this.#row.run_id === null)
      this.#untold.push({ index: this.#keys.indexOf(key), total: this.#keys.length, key, duration_ms: Math.round(ms) });
    return result;
  }

  /** For the transaction that ends the start: the events of what was not told yet. */
  untold(): NewEvent[] {
    const { uid, id, tenant_id } = this.#row;
    return this.#untold.map((step) => {
      const data: StateEventData = { state: 'provisioning', vm_id: id, step };
      return { subjectKind: 'environment', subjectId: uid, tenantId: tenant_id, kind: 'step', data: { ...data } };
    });
  }

  /** Before something long: what was done until now is told while that goes on. */
  async tell(): Promise<void> {
    const events = this.untold();
    if (events.length === 0) return;
    const { uid } = this.#row;
    await this.#context.db.transaction(async (tx) => {
      // Its transitions wait for this row, and this for them: the event is told in its place among theirs.
      const row = tx
        .selectFrom('environments')
        .select('uid')
        .where('uid', '=', uid)
        .where('state', '=', 'provisioning');
      if ((await row.forUpdate().executeTakeFirst()) !== undefined) await recordEvents(tx, events);
    });
    this.#untold = [];
  }
}
