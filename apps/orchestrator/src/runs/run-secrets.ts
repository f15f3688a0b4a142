/** What is secret in a run's row: sealed and opened here. */
import type { RunRow } from '../db/schema.ts';
import { openJson, sealJson } from '../secrets/sealed-json.ts';
import { sealedAt } from '../secrets/sealed-places.ts';
import type { Sealer } from '../secrets/sealer.ts';
import type { PreparedRequest, RunCommand, StoredRequest } from './request.ts';

export function sealRequest(sealer: Sealer, { argv, env, ...rest }: PreparedRequest, id: string): StoredRequest {
  return { ...rest, command: sealJson<RunCommand>(sealer, { argv, env }, sealedAt('runs.request', id)) };
}

export function openCommand(sealer: Sealer, { request, id }: Pick<RunRow, 'request' | 'id'>): RunCommand {
  // Written by sealRequest; before there was sealing the command lay beside the rest.
  const stored = request as StoredRequest | PreparedRequest;
  if ('argv' in stored) return { argv: stored.argv, env: stored.env };
  return openJson(sealer, stored.command, sealedAt('runs.request', id));
}
