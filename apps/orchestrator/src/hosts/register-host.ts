/** A host into the registry: asked first what it is, then written down. */
import { AppError, type Host, invalidField } from '@fuse/contract';
import type { Db, Tx } from '../db/db.ts';
import { usedByHost } from '../environments/environment-store.ts';
import type { IdempotentRequest } from '../idempotency/idempotency-key.ts';
import { findAnswer } from '../idempotency/idempotency-store.ts';
import { makeOnce } from '../idempotency/make-once.ts';
import type { Sealer } from '../secrets/sealer.ts';
import { toHost } from './host.ts';
import { HostClient } from './host-client.ts';
import type { HostTls } from './host-request.ts';
import type { Heartbeat } from './host-states.ts';
import { upsertHost } from './host-store.ts';
import { isHostUnreachable, isTokenRefused } from './host-transport.ts';
import {
  checkRegistration,
  fillCapacity,
  fillGpus,
  type GivenRegistration,
  type Registration,
} from './registration.ts';

export interface HostContext {
  db: Db;
  sealer: Sealer;
  /** How hosts with an https URL are trusted, and trust us. */
  tls?: HostTls | undefined;
}

export interface RegisterOptions {
  /** See upsertHost. */
  mode: 'replace' | 'refresh';
  /** What must still hold when it is written, in that transaction. */
  before?: (tx: Tx) => Promise<void>;
  idempotent?: IdempotentRequest | undefined;
}

/** Warnings say where the declaration and the host disagree. */
export async function registerHost(
  { db, sealer, tls }: HostContext,
  given: GivenRegistration,
  { mode, before, idempotent }: RegisterOptions,
): Promise<{ answer: Host; replayed: boolean }> {
  const request = checkRegistration(given);
  const earlier = idempotent === undefined ? undefined : await findAnswer(db.query, idempotent);
  if (earlier !== undefined) return { answer: earlier.response as Host, replayed: true }; // recorded below
  const token = request.token || null;
  const warnings: string[] = [];
  const probe = await probeFor(request, tls, warnings);
  if (request.arch !== undefined && probe !== undefined && probe.report.arch !== request.arch)
    throw invalidField('capacity.arch', `declared ${request.arch}, the host is ${probe.report.arch}`);
  const filled = fillCapacity(request, probe?.report, warnings);
  const gpus = fillGpus(request, probe?.report, warnings);
  const registration = {
    id: request.id,
    url: request.url,
    token,
    region: request.region || null,
    backend: probe?.report.backend ?? request.backend,
    arch: probe?.report.arch ?? request.arch ?? 'amd64',
    labels: request.labels,
    capacity: filled.capacity,
    gpuCapacity: gpus.capacity,
    declared: [...filled.declared, ...gpus.declared],
    images: probe?.images ?? [],
    freeStorageGb: probe?.report.free_storage_gb,
    templates: probe?.report.templates ?? [],
    noNetwork: probe?.report.no_network,
  };
  return makeOnce(db, idempotent, {
    resourceId: request.id,
    make: async (tx) => {
      await before?.(tx);
      const row = await upsertHost(tx, sealer, registration, mode);
      const used = await usedByHost(tx);
      return { ...toHost(row, used.get(row.id)), ...(warnings.length === 0 ? {} : { warnings }) };
    },
    kept: (host) => host,
  });
}

/** Undefined, with a warning, when the host cannot be asked but everything was declared. */
async function probeFor(
  { id, url, token, capacity: { cpus, ram_mb, storage_gb } = {} }: Registration,
  tls: HostTls | undefined,
  warnings: string[],
): Promise<Heartbeat | undefined> {
  await using client = new HostClient({ id, url, token: token || null, tls });
  try {
    return await client.heartbeat();
  } catch (error) {
    if (isTokenRefused(error))
      throw new AppError('unauthorized', 'the host agent refuses this token', { status: 502, cause: error });
    const why = error instanceof Error ? error.message : String(error);
    if (!cpus || !ram_mb || !storage_gb)
      throw new AppError('internal', `could not verify host agent at ${url}: ${why}`, {
        status: 502,
        cause: error,
        hint: isHostUnreachable(error)
          ? 'Start the host agent first, or declare its whole capacity.'
          : 'See the host agent’s log.',
      });
    warnings.push(`could not verify host agent at ${url} (${why}); registering with declared capacity`);
    return undefined;
  }
}
