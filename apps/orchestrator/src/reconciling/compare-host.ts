/**
 * One host against the truth. Order matters: what should be there is read before the host is asked, so that a VM which appears meanwhile is never
 * taken for missing; what should not be there is looked up after, one by one.
 */
import type { Fence, HostVm } from '@fuse/host-protocol';
import type { Logger } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { EnvironmentRow, HostRow } from '../db/schema.ts';
import { isGone } from '../environments/environment.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { transition } from '../environments/environment-store.ts';
import { recordHealth } from '../environments/health.ts';
import type { HostDirectory } from '../hosts/host-directory.ts';
import type { ReconcileMetrics } from '../metrics/reconcile-metrics.ts';
import { compareNetworks } from '../network/compare-networks.ts';
import type { NetworkConfig } from '../network/network-config.ts';
import { environmentByVm, expectedOnHost } from './due.ts';
import type { Sightings } from './sightings.ts';
import type { Tasks } from './tasks.ts';

export interface HostComparison {
  db: Db;
  hosts: HostDirectory;
  environments: EnvironmentService;
  log: Logger;
  clusterTag: string;
  tasks: Tasks;
  sightings: Sightings;
  /** VMs that know of no healthcheck though they should. */
  unchecked: Sightings;
  /** How long a VM may be missing (its agent restarts) before its environment is called lost. */
  missingGraceMs: number;
  /** How long a VM with our tag may be unknown to us before it is destroyed. */
  orphanGraceMs: number;
  stillLeader(): Promise<boolean>;
  metrics: ReconcileMetrics | undefined;
  network: NetworkConfig;
  /** Of the lease under which this is done: the host refuses what a former leader asks of it. */
  fence: Fence;
}

export async function compareHost(context: HostComparison, host: HostRow, signal: AbortSignal): Promise<void> {
  const expected = await expectedOnHost(context.db.query, host.id);
  const found = await context.hosts.clientOf(host, context.fence).vms(signal);
  const byId = new Map(found.map((vm) => [vm.id, vm]));
  for (const row of expected) await checkExpected(context, host, row, byId.get(row.vm_id));
  const ours = found.filter((vm) => vm.tag === context.clusterTag && vm.state !== 'destroying');
  context.metrics?.vmsFound(host.id, found.filter((vm) => vm.tag === context.clusterTag).length);
  const known = new Set(expected.map((row) => row.vm_id));
  for (const vm of ours) if (!known.has(vm.id)) await checkUnexpected(context, host, vm);
  const seen = [...expected.map((row) => row.vm_id), ...ours.map((vm) => vm.id)];
  context.sightings.keepOnly(host.id, seen);
  context.unchecked.keepOnly(host.id, seen);
  await compareNetworks(
    {
      db: context.db,
      config: context.network,
      enforce: (uid) => context.tasks.start(`network:${uid}`, () => context.environments.enforceNetwork(uid)),
    },
    ours,
  );
}

async function checkExpected(context: HostComparison, host: HostRow, row: EnvironmentRow, vm: HostVm | undefined) {
  if (vm !== undefined && vm.state !== 'dead' && vm.state !== 'destroying') {
    context.sightings.forget(host.id, row.vm_id);
    await checkHealth(context, host, row, vm);
    if (disagree(row, vm)) context.tasks.start(`env:${row.uid}`, () => context.environments.putRight(row));
    return;
  }
  // Cut off in the middle of a restore in place: whoever drives that does it again.
  if (vm?.state === 'dead' && row.restore_id !== null) return;
  if (vm === undefined && context.sightings.ageMs(host.id, row.vm_id) < context.missingGraceMs) return;
  const reason = vm?.error ?? (vm === undefined ? 'vm missing from its host' : 'the vm died');
  const failed = await context.db.transaction((tx) => transition(tx, row, 'failed', reason));
  if (failed === undefined) return; // somebody else decided meanwhile
  context.metrics?.vmsMissing.inc();
  context.log.warn({ environment: row.id, vm_id: row.vm_id, host_id: host.id, reason }, 'environment lost its VM');
  discardVm(context, host, failed);
}

async function checkHealth(context: HostComparison, host: HostRow, row: EnvironmentRow, vm: HostVm): Promise<void> {
  const { healthcheck } = row;
  if (healthcheck === null || (row.state !== 'running' && row.state !== 'draining')) return;
  if (vm.health !== undefined) {
    context.unchecked.forget(host.id, row.vm_id);
    return recordHealth(context.db, row, vm);
  }
  // A guest that was booted anew from its disk. One whose agent came back a moment ago is asked first what it knows.
  if (vm.state !== 'running' || context.unchecked.ageMs(host.id, row.vm_id) < context.missingGraceMs) return;
  context.tasks.start(`health:${row.uid}`, () => context.hosts.clientOf(host).putHealthcheck(row.vm_id, healthcheck));
}

/** What is on its way is left to whoever drives it. */
const disagree = (row: EnvironmentRow, vm: HostVm): boolean =>
  (row.state === 'running' && vm.state === 'paused') || (row.state === 'paused' && vm.state === 'running');

/** Ours by its tag and not among the expected: being started, being destroyed, gone, or never heard of. */
async function checkUnexpected(context: HostComparison, host: HostRow, vm: HostVm): Promise<void> {
  const row = await environmentByVm(context.db.query, vm.id);
  if (row !== undefined && !isGone(row.state)) return;
  const unknownFor = context.sightings.ageMs(host.id, vm.id);
  // Of an environment that is known to be gone nothing more can come; of an unknown one the truth may be late.
  if (row === undefined && unknownFor < context.orphanGraceMs) return;
  if (!(await context.stillLeader())) return;
  context.log.warn({ vm_id: vm.id, host_id: host.id, known: row !== undefined }, 'destroying a VM that nothing owns');
  if (row === undefined)
    context.tasks.start(taskOf(host, vm.id), () =>
      counted(context, () => context.hosts.clientOf(host, context.fence).destroyVm(vm.id)),
    );
  else discardVm(context, host, row);
}

/** Of an environment that is gone. */
function discardVm(context: HostComparison, host: HostRow, row: EnvironmentRow): void {
  context.tasks.start(taskOf(host, row.vm_id), () => counted(context, () => context.environments.discardVm(row)));
}

async function counted({ metrics }: HostComparison, destroy: () => Promise<unknown>): Promise<void> {
  try {
    await destroy();
    metrics?.orphansDestroyed.inc();
  } catch (error) {
    metrics?.orphansFailed.inc();
    throw error;
  }
}

const taskOf = (host: HostRow, vmId: string): string => `vm:${host.id}:${vmId}`;
