/**
 * The order in which the API checks a create: gpus that do not go together are told before labels, and a pin to a host that does not exist (404) before what comes after it
 * in the request.
 */
import { AppError, EnvironmentSpec } from '@fuse/contract';
import type { Queryable } from '../db/db.ts';
import { hostById } from '../hosts/host-store.ts';
import { checkGpus } from './environment.ts';

/** What a request's schema finds fault with before each: everything else comes after. */
const BEFORE_GPUS =
  /^(\(body\)|task_id|spec|spec\.(cpus|ram_mb|storage_gb|region|arch|image|gpus|gpu_kind|gpu_profile)(\..*)?)$/;
const BEFORE_PIN = /^spec\.(labels|host_id)(\..*)?$/;

/** `error` is what is wrong with `body`; resolves with what is to be told. */
export async function pinFirst(db: Queryable, error: unknown, body: unknown): Promise<unknown> {
  const isMistake =
    error instanceof AppError && (error.code === 'invalid_argument' || error.code === 'payload_too_large');
  const field = isMistake ? error.details?.field : undefined;
  if (field === undefined || BEFORE_GPUS.test(field)) return error;
  const gpus = gpuMistakeIn(body);
  if (gpus !== undefined) return gpus;
  const pin = pinOf(body);
  if (pin === undefined || BEFORE_PIN.test(field)) return error;
  return (await hostById(db, pin)) === undefined ? noSuchHost(pin) : error;
}

const noSuchHost = (id: string): AppError =>
  new AppError('not_found', `spec.host_id: host "${id}" is not registered`, { details: { field: 'spec.host_id' } });

const specOf = (body: unknown): unknown =>
  typeof body === 'object' && body !== null && 'spec' in body ? body.spec : undefined;

const GpuFields = EnvironmentSpec.pick({ gpus: true, gpu_kind: true, gpu_profile: true });

function gpuMistakeIn(body: unknown): unknown {
  const { data } = GpuFields.safeParse(specOf(body));
  try {
    checkGpus(data ?? {});
    return undefined;
  } catch (error) {
    return error;
  }
}

function pinOf(body: unknown): string | undefined {
  const spec = specOf(body);
  const pin = typeof spec === 'object' && spec !== null && 'host_id' in spec ? spec.host_id : undefined;
  return typeof pin === 'string' && pin !== '' && pin.length <= 256 && !pin.includes('\0') ? pin : undefined;
}
