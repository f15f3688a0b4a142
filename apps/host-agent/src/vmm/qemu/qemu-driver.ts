/** The QEMU driver: KVM where a probe boot works, software emulation (TCG) elsewhere. */
import { AppError } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import type { VmmDriver } from '../driver.ts';

export interface QemuDriverOptions {
  /** Where the verdict on KVM is kept. */
  dataDirectory: string;
  /** What the probe boots. */
  kernelPath: string;
  log: Logger;
}

export async function openQemuDriver(_options: QemuDriverOptions): Promise<VmmDriver> {
  throw new AppError('unimplemented', 'qemu driver');
}
