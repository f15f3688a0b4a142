/** What every operation on environments stands on. */
import type { Logger } from '@fuse/runtime';
import type { Db } from '../db/db.ts';
import type { EventHub } from '../events/events.ts';
import type { HostDirectory } from '../hosts/host-directory.ts';
import type { NetworkConfig } from '../network/network-config.ts';
import type { PlacementPolicy } from '../scheduling/schedule.ts';
import type { Sealer } from '../secrets/sealer.ts';
import type { ExecArchiving } from './destroy-vm.ts';
import type { StartPhase } from './start-steps.ts';

export interface EnvironmentContext {
  db: Db;
  hub: EventHub;
  hosts: HostDirectory;
  log: Logger;
  sealer: Sealer;
  /** Ownership tag of this control plane's VMs. */
  clusterTag: string;
  /** Of public ids: `<vmPrefix><task_id>`. */
  vmPrefix: string;
  /** This process, in leases. */
  owner: string;
  placementPolicy: PlacementPolicy;
  /** A host that was not heard of for so long gets nothing new. */
  hostStaleMs: number;
  /** How long a start may go without a sign of life from whoever drives it. */
  startLeaseMs: number;
  /** How long an unreachable host is asked again before the operation is given up (or left to the reconciler). */
  hostRetryMs: number;
  archiving: ExecArchiving;
  network: NetworkConfig;
  /** For the metrics. */
  measurePhase?: (phase: StartPhase, seconds: number) => void;
  /** Where clients reach us, as bare host:port; known once we listen. */
  publicAddress: () => string;
}
