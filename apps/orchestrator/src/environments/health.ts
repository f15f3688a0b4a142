/** Verdicts of healthchecks: hosts tell them with their VMs, the row keeps the last one, a change of its state is an event. They end nothing. */
import type { Health } from '@fuse/contract';
import type { HostVm } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { type Db, jsonb } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { recordEvent } from '../events/events.ts';
import { storableText } from '../runs/storable-text.ts';
import type { StateEventData } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';

/** Of a check that has not passed yet, by whoever started it; everything else is the reconciler's. */
const WATCH_EVERY_MS = 1_000;
const WATCH_MS = 60_000;
const MAX_MESSAGE = 1_024;

type Checked = Pick<EnvironmentRow, 'uid' | 'id' | 'state' | 'healthcheck' | 'health'>;

/** Nothing happens when it is known already, or `row` does not run any more. */
export async function recordHealth(db: Db, row: Checked, vm: Pick<HostVm, 'health'>): Promise<void> {
  if (row.healthcheck === null || vm.health === undefined) return;
  const health = storable(vm.health);
  if (isSame(row.health, health)) return;
  await db.transaction(async (tx) => {
    // The state's own transitions wait for this row, and this for them: the event is told in its place among theirs.
    const before = await tx
      .selectFrom('environments')
      .select(['state', 'health', 'tenant_id'])
      .where('uid', '=', row.uid)
      .where('state', '=', row.state)
      .forUpdate()
      .executeTakeFirst();
    if (before === undefined || isSame(before.health, health)) return;
    await tx
      .updateTable('environments')
      .set({ health: jsonb(health) })
      .where('uid', '=', row.uid)
      .execute();
    if (before.health?.state === health.state) return;
    const data: StateEventData = { state: before.state, vm_id: row.id, health };
    const subject = { subjectKind: 'environment', subjectId: row.uid, tenantId: before.tenant_id } as const;
    await recordEvent(tx, { ...subject, kind: 'health', data: { ...data } });
  });
}

/** The guest's words, as far as anybody reads them. */
const storable = ({ message, ...health }: Health): Health =>
  message === undefined ? health : { ...health, message: storableText(message, MAX_MESSAGE) };

const isSame = (a: Health | null, b: Health): boolean =>
  a !== null && a.state === b.state && a.since === b.since && a.failures === b.failures && a.message === b.message;

/** Looks often at one that was just started, until its first verdict that counts, or for a minute. */
export async function watchHealth(context: EnvironmentContext, started: EnvironmentRow, signal: AbortSignal) {
  if (started.healthcheck === null) return;
  const client = await context.hosts.client(started.host_id);
  const until = performance.now() + WATCH_MS;
  while (performance.now() < until) {
    await sleep(WATCH_EVERY_MS, signal);
    const vm = await client.vm(started.vm_id, signal);
    await recordHealth(context.db, started, vm);
    if (vm.health !== undefined && vm.health.state !== 'starting') return;
  }
}
