/**
 * provisioning -> running, or -> failed with nothing left behind.
 * Whoever drives a start holds the row's lease and renews it; when the lease runs out anybody may drive it again (the VM is
 * made once, by its id, and its startup repeats no step that counts). The reconciler gives up those that somebody waited for, and goes on with the others.
 */
import { AppError, type ErrorCode } from '@fuse/contract';
import type { CreateVm, HostVm } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { now, type Tx } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { isHostUnreachable } from '../hosts/host-transport.ts';
import { policiesOf } from '../network/choose-network.ts';
import { NO_NETWORK_CARD, settleNetwork } from '../network/enforce-network.ts';
import { type ArchiveColumns, destroyVm } from './destroy-vm.ts';
import { isGone } from './environment.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { openEnv } from './environment-secrets.ts';
import { claimStart, environmentByUid, releaseLease, takeLease, transition } from './environment-store.ts';
import { runStartup, STARTUP_TIMED_OUT } from './run-startup.ts';
import { reportSeedFailure, sourceOf } from './seed.ts';
import { StartSteps } from './start-steps.ts';

const LOOK_AGAIN_MS = 250;

/** Why one failed whose driver was gone. */
export const INTERRUPTED = 'its start was interrupted';

/** Reason of an abort that gives nothing up: another process, or this one's successor, goes on with the start or undoes it. */
export class ProcessStops extends AppError {
  constructor() {
    super('unavailable', 'the orchestrator stops', { retryAfterSeconds: 1 });
  }
}

export interface StartOptions {
  signal?: AbortSignal | undefined;
  /** `cold`: boot even when there is a template. */
  start?: CreateVm['start'];
  /** The caller holds the lease of the run that it belongs to: that is what keeps others away. */
  heldByRun?: boolean;
  /** As it was just admitted: not read again. */
  admitted?: EnvironmentRow | undefined;
  /** Part of the transaction that makes it `running`. */
  onRunning?: (tx: Tx) => Promise<void>;
}

export async function startEnvironment(
  context: EnvironmentContext,
  uid: string,
  options: StartOptions,
): Promise<EnvironmentRow> {
  const { signal, heldByRun = false } = options;
  let known = options.admitted;
  for (;;) {
    const row = known ?? (await environmentByUid(context.db.query, uid));
    known = undefined;
    if (row === undefined || isGone(row.state) || row.state === 'destroying') throw goneMeanwhile(row);
    if (row.state !== 'provisioning') return row;
    if (heldByRun) return boot(context, row, options);
    const isOurs =
      row.lease_owner === context.owner ||
      (await takeLease(context.db.query, uid, context.owner, context.startLeaseMs));
    if (isOurs) return leased(context, row, () => boot(context, row, options));
    await sleep(LOOK_AGAIN_MS, signal);
  }
}

export function goneMeanwhile(row: EnvironmentRow | undefined): AppError {
  return new AppError('conflict', `environment ${row?.id ?? ''} was destroyed while it started`);
}

export async function leased<T>(context: EnvironmentContext, row: EnvironmentRow, work: () => Promise<T>): Promise<T> {
  const renewal = setInterval(() => {
    takeLease(context.db.query, row.uid, context.owner, context.startLeaseMs).catch((error: unknown) =>
      context.log.warn({ err: error, environment: row.id }, 'lease of a start not renewed'),
    );
  }, context.startLeaseMs / 3);
  try {
    return await work();
  } finally {
    clearInterval(renewal);
  }
}

async function boot(
  context: EnvironmentContext,
  row: EnvironmentRow,
  { signal, start, onRunning }: StartOptions,
): Promise<EnvironmentRow> {
  const steps = new StartSteps(context, row);
  let vm: HostVm;
  try {
    vm = await steps.take(steps.first, () => createVm(context, row, { signal, start }));
    signal?.throwIfAborted();
    await runStartup(context, row, steps, signal);
    signal?.throwIfAborted();
  } catch (error) {
    if (signal?.reason instanceof ProcessStops || (isGoneOnWith(row) && isHostUnreachable(error)))
      await releaseLease(context.db.query, row.uid, context.owner);
    else await giveUpIfStarting(context, row.uid, reasonOf(error, signal));
    throw startError(row, error, signal);
  }
  return confirmRunning(context, row, { steps, vm, onRunning });
}

/** Nobody waits for it, so whoever comes by goes on with it. */
export const isGoneOnWith = ({ startup }: EnvironmentRow): boolean => startup?.waited === false;

/** Its VM, running, with the network that its row says now. */
export async function createVm(
  context: EnvironmentContext,
  row: EnvironmentRow,
  { signal, start }: StartOptions,
): Promise<HostVm> {
  const client = await context.hosts.client(row.host_id);
  const seed = await sourceOf(context.db.query, row);
  const env = openEnv(context.sealer, row);
  const body: CreateVm = {
    image: row.image,
    shape: { cpus: row.cpus, ram_mb: row.ram_mb, storage_gb: row.storage_gb },
    tag: context.clusterTag,
    hostname: row.vm_id,
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(start === undefined ? {} : { start }),
    ...(seed === undefined ? {} : { seed }),
    ...(row.gpus === null ? {} : { gpus: row.gpus }),
    // What a snapshot's card may reach is said too when that is nothing.
    ...(row.network.egress === 'none' && seed === undefined
      ? {}
      : { network: { policies: await policiesOf(context.db.query, context.network, row) } }),
  };
  const giveUpAt = performance.now() + context.hostRetryMs;
  for (;;) {
    try {
      const vm = await client.createVm(row.vm_id, body, signal);
      if (vm.state === 'dead') throw new AppError('vm_lost', `its VM died: ${vm.error ?? 'no reason known'}`);
      await settleNetwork(context, row.uid, vm, signal);
      return vm;
    } catch (error) {
      // A host agent that restarts keeps its VMs: asking again finds the one that was being made.
      await reportSeedFailure(context.db, row, error);
      if (!isHostUnreachable(error) || performance.now() > giveUpAt) throw error;
      await sleep(LOOK_AGAIN_MS, signal);
    }
  }
}

/** The VM is up: make that the truth, or take the VM down when somebody decided otherwise meanwhile. */
async function confirmRunning(
  context: EnvironmentContext,
  row: EnvironmentRow,
  { steps, vm, onRunning }: { steps: StartSteps; vm: HostVm; onRunning: StartOptions['onRunning'] },
): Promise<EnvironmentRow> {
  const running = await context.db.transaction(async (tx) => {
    // Nobody could use it before.
    const columns = {
      network_card: vm.network !== undefined,
      ...(row.startup === null ? {} : { last_activity_at: now }),
    };
    const changed = await transition(tx, row, 'running', { columns, before: steps.untold() });
    if (changed !== undefined) await onRunning?.(tx);
    return changed;
  });
  if (running !== undefined) return running;
  const current = await environmentByUid(context.db.query, row.uid);
  if (current?.state === 'running') return current;
  const client = await context.hosts.client(row.host_id);
  await client.destroyVm(row.vm_id);
  throw goneMeanwhile(current);
}

export async function giveUpIfStarting(context: EnvironmentContext, uid: string, reason: string): Promise<void> {
  const row = await environmentByUid(context.db.query, uid);
  if (row?.state === 'provisioning') await giveUpStart(context, row, reason);
}

/**
 * Claimed first, so that nobody who drives the same start can make it `running` any more. Then the VM goes, so that a reservation is never given back while its VM may live. A host that cannot be asked leaves the
 * environment `destroying`, for the reconciler to finish.
 */
export async function giveUpStart(context: EnvironmentContext, read: EnvironmentRow, reason: string): Promise<void> {
  const row = await claimStart(context.db.query, read, { owner: context.owner, ms: context.startLeaseMs, reason });
  if (row === undefined) return; // it changed since it was read: somebody else decided
  let to: 'failed' | 'destroying' = 'failed';
  let columns: ArchiveColumns = {};
  try {
    const client = await context.hosts.client(row.host_id);
    ({ columns } = await destroyVm(context, row, client)); // its startup script's output stays readable
  } catch (error) {
    context.log.warn({ err: error, environment: row.id, vm_id: row.vm_id }, 'VM of a failed start not destroyed yet');
    to = 'destroying';
  }
  await context.db.transaction((tx) => transition(tx, row, to, { error: reason, columns }));
}

export const reasonOf = (error: unknown, signal: AbortSignal | undefined): string => {
  if (signal?.aborted) return 'given up before it was running';
  return error instanceof Error ? error.message : String(error);
};

/** What the caller sees: the host's refusal with the environment named, whatever else as it is. */
export function startError(row: EnvironmentRow, error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted || !(error instanceof AppError) || error.code === 'internal') return error;
  if (error.details?.reason === STARTUP_TIMED_OUT) return error; // its message is one that clients know by its beginning
  const hint =
    isIncompatible(error) || isWithoutCard(error) ? 'Pass "fallback": "disk" to boot from its disk alone.' : error.hint;
  return new AppError(startCode(row, error), `provision vm ${row.id}: ${error.message}`, {
    cause: error,
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(hint === undefined ? {} : { hint }),
  });
}

const isIncompatible = (error: AppError): boolean => error.details?.reason === 'incompatible';
/** The snapshot's VM had none, and this one is to have a network. */
const isWithoutCard = (error: AppError): boolean => error.details?.reason === NO_NETWORK_CARD;

/** A snapshot that is gone, damaged or of another kind of host is told apart; all else is a host that could not. */
function startCode(row: EnvironmentRow, error: AppError): ErrorCode {
  if (error.code === 'invalid_argument') return error.code;
  if (row.seed_snapshot_id === null) return 'unavailable';
  const ofSeed =
    error.code === 'integrity_error' ||
    error.code === 'not_found' ||
    isIncompatible(error) ||
    isWithoutCard(error) ||
    error.details?.reason === 'snapshot_deleted';
  return ofSeed ? error.code : 'unavailable';
}
