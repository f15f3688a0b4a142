/** Why an environment is where it is, or waits: what the scheduler said of each host, as the row keeps it. */
import type { PlacementReport } from '@fuse/contract';
import { type RawBuilder, sql } from 'kysely';
import type { Judgement, Placed, Rejection } from '../scheduling/placement.ts';

/** Of a larger fleet the chosen host, the best of the others and the first that were refused. */
const MAX_HOSTS = 50;

export type Explained = Pick<Placed, 'hosts'> & { hostId?: string; message?: string };

export const explanationOf = (placement: Placed | Rejection): Explained =>
  placement.kind === 'placed'
    ? { hosts: placement.hosts, hostId: placement.hostId }
    : { hosts: placement.hosts, message: placement.message };

/** The column, with the database's time. */
export function placementColumn(explained: Explained): RawBuilder<PlacementReport> {
  const report = reportOf(explained, '');
  return sql<PlacementReport>`${JSON.stringify(report)}::jsonb
    || jsonb_build_object('at', to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))`;
}

export function reportOf({ hosts, hostId, message }: Explained, at: string): PlacementReport {
  return {
    ...(hostId === undefined ? {} : { host_id: hostId }),
    at,
    ...(message === undefined ? {} : { reason: message }),
    hosts: mostTelling(hosts, hostId).map(({ hostId: host_id, ...judged }) => ({ host_id, ...judged })),
  };
}

function mostTelling(hosts: readonly Judgement[], chosen: string | undefined): readonly Judgement[] {
  if (hosts.length <= MAX_HOSTS) return hosts;
  const rank = ({ hostId, score }: Judgement) =>
    hostId === chosen ? Number.POSITIVE_INFINITY : (score ?? Number.NEGATIVE_INFINITY);
  return [...hosts].sort((a, b) => (rank(a) === rank(b) ? 0 : rank(b) - rank(a))).slice(0, MAX_HOSTS);
}
