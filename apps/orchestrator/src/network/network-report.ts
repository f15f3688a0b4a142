/** `GET /v1/environments/{id}/network`: what it may reach, and what became of its connections. While it has a VM its host is asked; afterwards its row has the sums. */
import { AppError, type EnvironmentNetwork, MAX_LISTED_CONNECTIONS, NetworkPolicy } from '@fuse/contract';
import type { VmNetworkReport } from '@fuse/host-protocol';
import type { EnvironmentRow } from '../db/schema.ts';
import { isGone } from '../environments/environment.ts';
import type { EnvironmentContext } from '../environments/environment-context.ts';
import { NOTHING_CARRIED } from './network-totals.ts';

/** `row`: also one that is gone. 503 when its host cannot be asked. */
export async function networkReport(
  context: EnvironmentContext,
  row: EnvironmentRow,
  signal: AbortSignal,
): Promise<EnvironmentNetwork> {
  const { network_max } = (await context.db.query
    .selectFrom('tenants')
    .select('network_max')
    .where('id', '=', row.tenant_id)
    .executeTakeFirst()) ?? { network_max: null };
  const { max } = context.network;
  const asked = await askHost(context, row, signal);
  const kept = row.network_totals ?? NOTHING_CARRIED;
  const highest = (key: 'sent_bytes' | 'received_bytes' | 'allowed_count' | 'refused_count') =>
    Math.max(kept[key], asked?.[key] ?? 0);
  return {
    // In the schema's order of fields, whatever order the row keeps.
    policy: NetworkPolicy.parse(row.network),
    ...(network_max === null ? {} : { tenant_max: NetworkPolicy.parse(network_max) }),
    ...(max === undefined ? {} : { deployment_max: max }),
    sent_bytes: highest('sent_bytes'),
    received_bytes: highest('received_bytes'),
    allowed_count: highest('allowed_count'),
    refused_count: highest('refused_count'),
    connections: asked?.connections.slice(0, MAX_LISTED_CONNECTIONS) ?? [],
  };
}

/** Undefined: it has no card, or no VM (any more, or yet). */
async function askHost(
  context: EnvironmentContext,
  row: EnvironmentRow,
  signal: AbortSignal,
): Promise<VmNetworkReport | undefined> {
  if (row.network_card === false || row.host_id === null || isGone(row.state)) return undefined;
  try {
    return await (await context.hosts.client(row.host_id)).network(row.vm_id, signal);
  } catch (error) {
    if (error instanceof AppError && (error.code === 'not_found' || error.code === 'vm_lost')) return undefined;
    throw error;
  }
}
