/** What is secret in an environment's row: sealed and opened here. */
import type { EnvironmentRow, Startup, StartupContent } from '../db/schema.ts';
import { openJson, type SealedJson, sealJson } from '../secrets/sealed-json.ts';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';

type Variables = Record<string, string>;

/** As it is asked for. */
export interface PlannedStartup extends StartupContent, Omit<Startup, 'content'> {}

export const sealEnv = (sealer: Sealer, env: Variables, uid: string): SealedJson<Variables> =>
  sealJson(sealer, env, sealedAt('environments.env', uid));

export const openEnv = (sealer: Sealer, { env, uid }: Pick<EnvironmentRow, 'env' | 'uid'>): Variables =>
  openJson(sealer, env, sealedAt('environments.env', uid));

export function sealStartup(sealer: Sealer, planned: PlannedStartup, uid: string): Startup {
  const { timeout_seconds, waited, ...content } = planned;
  return { timeout_seconds, waited, content: sealJson(sealer, content, sealedAt('environments.startup', uid)) };
}

export function openStartup(sealer: Sealer, startup: Startup, uid: string): PlannedStartup {
  const { content, ...rest } = startup;
  // Written before there was sealing: the content lies beside the rest.
  if (content === undefined) return rest;
  return { ...rest, ...openJson(sealer, content, sealedAt('environments.startup', uid)) };
}
