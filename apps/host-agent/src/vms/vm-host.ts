/** What every VM of this host shares. */
import type { ObjectStore } from '@fuse/object-store';
import type { Logger } from '@fuse/runtime';
import type { Guest } from '../guest/guest.ts';
import type { Assets } from '../images/assets.ts';
import type { Templates } from '../templates/templates.ts';
import type { Vmm, VmmDriver } from '../vmm/driver.ts';

export interface VmHost {
  driver: VmmDriver;
  templates: Templates;
  assets: Assets;
  store: ObjectStore;
  log: Logger;
  connectGuest: (vmm: Vmm) => Guest;
  /** `<data directory>/vms` */
  vmsDirectory: string;
  maxVms: number;
  /** Less free disk than this refuses new VMs. */
  storageReserveBytes: number;
}
