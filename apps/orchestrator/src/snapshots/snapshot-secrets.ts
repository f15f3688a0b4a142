/** What is secret in a snapshot's row: sealed and opened here. */
import type { SnapshotRow } from '../db/schema.ts';
import { openJson, type SealedJson, sealJson } from '../secrets/sealed-json.ts';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';

type Variables = Record<string, string>;

export const sealSnapshotEnv = (sealer: Sealer, env: Variables, id: string): SealedJson<Variables> =>
  sealJson(sealer, env, sealedAt('snapshots.env', id));

export const openSnapshotEnv = (sealer: Sealer, { env, id }: Pick<SnapshotRow, 'env' | 'id'>): Variables =>
  openJson(sealer, env, sealedAt('snapshots.env', id));
