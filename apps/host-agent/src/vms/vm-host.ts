/** What every VM of this host shares. */
import type { ObjectStore } from '@fuse/object-store';
import type { Logger } from '@fuse/runtime';
import type { Gpus } from '../gpus/gpus.ts';
import type { Guest } from '../guest/guest.ts';
import type { Assets } from '../images/assets.ts';
import type { HostNetwork } from '../network/host-network.ts';
import type { Snapshots } from '../snapshots/snapshots.ts';
import type { Templates } from '../templates/templates.ts';
import type { Vmm, VmmDriver } from '../vmm/driver.ts';

export interface VmHost {
  driver: VmmDriver;
  templates: Templates;
  snapshots: Snapshots;
  network: HostNetwork;
  gpus: Gpus;
  /** From the object store into `snapshots`, verified; shared by those who ask at the same time. */
  importSnapshot: (wanted: { snapshotId: string; manifestKey: string }, signal: AbortSignal) => Promise<void>;
  assets: Assets;
  store: ObjectStore;
  log: Logger;
  connectGuest: (vmm: Vmm) => Guest;
  /** `<data directory>/vms` */
  vmsDirectory: string;
  maxVms: number;
  /** Less free disk than this refuses new VMs, snapshots and pauses. */
  storageReserveBytes: number;
}
