/** Where what is to be sealed anew is found: rows that are in clear or sealed with the old key, and what takes their place. */
import { type RawBuilder, sql } from 'kysely';
import type { EnvironmentRow, SnapshotRow, Startup } from '../db/schema.ts';
import { openEnv, openStartup, sealEnv, sealStartup } from '../environments/environment-secrets.ts';
import type { PreparedRequest, StoredRequest } from '../runs/request.ts';
import { openCommand, sealRequest } from '../runs/run-secrets.ts';
import { openSnapshotEnv, sealSnapshotEnv } from '../snapshots/snapshot-secrets.ts';
import { openJson, type SealedJson, sealJson } from './sealed-json.ts';
import { type SealedPlace, sealedAt } from './sealed-places.ts';
import type { Sealer } from './sealer.ts';

export interface ResealedColumn {
  table: string;
  column: string;
  /** SQL, text: the row's name, in the order of which rows are taken, and what the sealed text is bound to. */
  key: RawBuilder<string>;
  /** SQL: whether it begins otherwise than what is sealed now. */
  isPending: (prefix: string) => RawBuilder<boolean>;
  /** Sealed with the current key. Throws when it cannot be opened. */
  reseal: (sealer: Sealer, value: unknown, key: string) => unknown;
  isJson: boolean;
}

const json = (
  place: SealedPlace,
  key: RawBuilder<string>,
  sealed: RawBuilder<unknown>,
  reseal: ResealedColumn['reseal'],
): ResealedColumn => {
  const [table = '', column = ''] = place.split('.');
  const isPending = (prefix: string) =>
    sql<boolean>`${sql.ref(column)} is not null and ${sealed} is distinct from '{}'::jsonb
      and not coalesce(starts_with(${sealed} ->> 'sealed', ${prefix}), false)`;
  return { table, column, key, isPending, reseal, isJson: true };
};

const text = (place: SealedPlace, key: RawBuilder<string>): ResealedColumn => {
  const [table = '', column = ''] = place.split('.');
  const isPending = (prefix: string) =>
    sql<boolean>`${sql.ref(column)} is not null and not starts_with(${sql.ref(column)}, ${prefix})`;
  const reseal = (sealer: Sealer, value: unknown, name: string) => {
    const context = sealedAt(place, name);
    return sealer.seal(sealer.open(String(value), context), context);
  };
  return { table, column, key, isPending, reseal, isJson: false };
};

const uid = sql<string>`uid::text`;
const id = sql<string>`id`;
/** As idempotency-store.ts names them. */
const idempotencyKey = sql<string>`tenant_id || ' ' || route || ' ' || key`;

// Whatever is read here was written by the functions that open it.
export const resealedColumns: readonly ResealedColumn[] = [
  json('environments.env', uid, sql`env`, (sealer, value, key) =>
    sealEnv(sealer, openEnv(sealer, { env: value as EnvironmentRow['env'], uid: key }), key),
  ),
  json('environments.startup', uid, sql`(startup -> 'content')`, (sealer, value, key) =>
    sealStartup(sealer, openStartup(sealer, value as Startup, key), key),
  ),
  json('snapshots.env', id, sql`env`, (sealer, value, key) =>
    sealSnapshotEnv(sealer, openSnapshotEnv(sealer, { env: value as SnapshotRow['env'], id: key }), key),
  ),
  json('runs.request', id, sql`(request -> 'command')`, (sealer, value, key) => {
    const { command: _, ...rest } = value as StoredRequest & PreparedRequest; // or one of the two
    return sealRequest(sealer, { ...rest, ...openCommand(sealer, { request: value, id: key }) }, key);
  }),
  {
    ...json('idempotency_keys.response', idempotencyKey, sql`response`, (sealer, value, key) => {
      const context = sealedAt('idempotency_keys.response', key);
      return sealJson(sealer, openJson(sealer, value as SealedJson<object>, context), context);
    }),
    // Most answers hold no secret, and are in clear.
    isPending: (prefix) => sql<boolean>`response ? 'sealed' and not starts_with(response ->> 'sealed', ${prefix})`,
  },
  text('environments.token_sealed', uid),
  text('hosts.token_sealed', id),
  text('cluster.url_signing_key_sealed', sql<string>`singleton::text`),
];
