/**
 * What hosts report of a card goes into its environment's row, and with it, in one transaction under the row's lock, into the ledger (bytes that are new) and onto
 * the streams (refusals that are new). So each is there once, whoever reports it, however often, and whatever dies.
 */
import { sql } from 'kysely';
import { type Db, jsonb, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { isGone, type StateEventData } from '../environments/environment.ts';
import { type NewEvent, recordEvents } from '../events/events.ts';
import { storableText } from '../runs/storable-text.ts';
import { type Advance, advance, type NetworkReport, NOTHING_CARRIED } from './network-totals.ts';

const MAX_NAME = 255;
const MAX_DETAIL = 512;

export async function recordNetwork(db: Db, uid: string, report: NetworkReport): Promise<void> {
  await db.transaction(async (tx) => {
    const row = await tx
      .selectFrom('environments')
      .select(['uid', 'id', 'tenant_id', 'state', 'network_totals'])
      .select(sql<number>`floor(extract(epoch from now()) / 60)::int`.as('minute'))
      .where('uid', '=', uid)
      .forUpdate()
      .executeTakeFirst();
    if (row === undefined) return;
    const next = advance(row.network_totals ?? NOTHING_CARRIED, report, row.minute);
    if (next === undefined) return;
    await tx
      .updateTable('environments')
      .set({ network_totals: jsonb(next.totals) })
      .where('uid', '=', uid)
      .execute();
    if (next.sentBytes > 0) await bill(tx, row.tenant_id, next.sentBytes);
    // The stream of one that is gone has ended.
    if (next.told.length > 0 && !isGone(row.state)) await recordEvents(tx, eventsOf(row, next));
  });
}

/** In the hour in which it is heard of; nothing is kept of a tenant that is gone. */
async function bill(tx: Tx, tenantId: string, bytes: number): Promise<void> {
  await sql`
    insert into usage (tenant_id, hour, egress_bytes)
    select id, date_trunc('hour', now(), 'UTC'), ${bytes}::bigint from tenants where id = ${tenantId}
    on conflict (tenant_id, hour) do update set egress_bytes = usage.egress_bytes + excluded.egress_bytes`.execute(tx);
}

function eventsOf(
  { uid, id, tenant_id, state }: Pick<EnvironmentRow, 'uid' | 'id' | 'tenant_id' | 'state'>,
  { told, missed }: Advance,
): NewEvent[] {
  return told.map(({ seq: _seq, sent_bytes: _sent, received_bytes: _received, duration_ms: _ms, ...refusal }, at) => {
    const { name, detail } = refusal;
    const network = {
      ...refusal,
      // A guest's words.
      ...(name === undefined ? {} : { name: storableText(name, MAX_NAME) }),
      ...(detail === undefined ? {} : { detail: storableText(detail, MAX_DETAIL) }),
      ...(at === 0 && missed > 0 ? { missed } : {}),
    };
    const data: StateEventData = { state, vm_id: id, network };
    return { subjectKind: 'environment', subjectId: uid, tenantId: tenant_id, kind: 'network', data: { ...data } };
  });
}
