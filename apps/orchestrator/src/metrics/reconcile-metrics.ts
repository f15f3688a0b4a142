/** What the reconciler did, by the names of api.md 7.3. Counted by whichever process leads. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export interface ReconcileMetrics {
  seconds: Histogram;
  cycles: Counter;
  orphansDestroyed: Counter;
  orphansFailed: Counter;
  overdueSuspected: Counter;
  overdueEnded: Counter;
  idleSuspected: Counter;
  idleEnded: Counter;
  vmsMissing: Counter;
  /** VMs of ours that this host has. */
  vmsFound(hostId: string, count: number): void;
}

export function createReconcileMetrics(registry: Registry): ReconcileMetrics {
  const registers = [registry];
  const counter = (name: string, help: string) =>
    new Counter({ name: `orchestrator_reconcile_${name}_total`, help, registers });
  counter('orphans_dead_lettered', 'Orphans that were given up: none ever is, each is tried again');
  const found = new Map<string, number>();
  new Gauge({
    name: 'orchestrator_fleet_provider_vms',
    help: 'VMs of ours that hosts told of when they were last compared; 0 where this process does not lead',
    registers,
    collect() {
      this.set([...found.values()].reduce((sum, count) => sum + count, 0));
    },
  });
  return {
    seconds: new Histogram({
      name: 'orchestrator_reconcile_duration_seconds',
      help: 'Time that a cycle took',
      buckets: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
      registers,
    }),
    cycles: counter('cycles', 'Cycles that this process led'),
    orphansDestroyed: counter('orphans_destroyed', 'VMs with our tag that nothing owned, destroyed'),
    orphansFailed: counter('orphans_failed', 'Attempts to destroy an orphan that failed'),
    overdueSuspected: counter('stuck_tasks_suspected', 'Environments found beyond their max_runtime_seconds'),
    overdueEnded: counter('stuck_tasks_failed', 'Environments ended for that'),
    idleSuspected: counter('idle_vms_suspected', 'Environments found idle beyond their idle_timeout_seconds'),
    idleEnded: counter('idle_vms_failed', 'Environments destroyed or paused for that'),
    vmsMissing: counter('vms_missing_provider', 'Environments that failed because their VM was gone or dead'),
    vmsFound: (hostId, count) => void found.set(hostId, count),
  };
}
