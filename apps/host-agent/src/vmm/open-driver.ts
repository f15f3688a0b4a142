/** The driver of this host's VMs, by configuration and by what boots here. */
import { AppError } from '@fuse/contract';
import { Confinement, DEFAULT_CONFINEMENT } from '../confinement/confinement.ts';
import { AdoptingDriver } from './adopting-driver.ts';
import type { VmmDriver } from './driver.ts';
import { adoptFirecracker, isFirecrackers } from './firecracker/adopt.ts';
import { FirecrackerDriver } from './firecracker/firecracker-driver.ts';
import { firecrackerBoots } from './firecracker/kvm-probe.ts';
import { findFirecracker } from './firecracker/programs.ts';
import { hasVmm } from './process.ts';
import { openQemuDriver, type QemuDriverOptions } from './qemu/qemu-driver.ts';
import type { VmmConfig } from './vmm-config.ts';

export interface DriverOptions extends QemuDriverOptions {
  vmm: VmmConfig;
  /** Of each VM, each way. */
  networkBytesPerSecond?: number | undefined;
}

export async function openDriver(options: DriverOptions): Promise<VmmDriver> {
  const { vmm, log } = options;
  switch (vmm.choice) {
    case 'qemu':
      return openQemu(options);
    case 'firecracker':
      return openFirecracker(options).catch((error: unknown) => rejectWithKvm(error, options));
    case 'auto':
      try {
        return await openFirecracker(options);
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        log.info({ reason: error.message }, 'VMs run in QEMU: Firecracker does not run here');
        return openQemu(options);
      }
  }
}

/** Rejects with the reason, and what to do, where Firecracker is not installed, is one that is not used, or boots nothing. */
export async function openFirecrackerDriver(options: DriverOptions): Promise<VmmDriver> {
  const { vmm, log, dataDirectory, kernelPath } = options;
  const programs = await findFirecracker({ firecracker: vmm.firecrackerPath, jailer: vmm.jailerPath });
  const confinement = await Confinement.open(options.confinement ?? DEFAULT_CONFINEMENT, log);
  if (confinement === undefined)
    throw new AppError('unavailable', 'Firecracker is started by its jailer alone, and VMMs are not confined here', {
      hint: 'run the host agent as root on a host with control groups, and leave FUSE_CONFINEMENT at auto or required',
    });
  const means = { programs, confinement, log };
  const verdict = await firecrackerBoots(means, { dataDirectory, kernelPath });
  if (!verdict.boots)
    throw new AppError('unavailable', `no VM boots in Firecracker here: ${verdict.reason}`, {
      hint: 'Firecracker needs KVM that a stock kernel boots under: bare metal, or nested virtualisation. FUSE_VMM=qemu does without',
    });
  const rates = { disk: options.diskRate, network: { bytesPerSecond: options.networkBytesPerSecond } };
  return new FirecrackerDriver({ ...means, rates });
}

/** Whoever installs Firecracker where nothing boots under KVM has gained nothing: both are told at once. */
async function rejectWithKvm(error: unknown, options: DriverOptions): Promise<never> {
  if (!(error instanceof AppError)) throw error;
  const accelerator = await openQemuDriver(options).then(
    (driver) => driver.accelerator,
    () => undefined, // no QEMU to try with
  );
  if (accelerator !== 'tcg') throw error;
  throw new AppError(error.code, `${error.message}; and no VM boots under KVM here, which Firecracker needs`, {
    cause: error.cause,
    ...(error.hint === undefined ? {} : { hint: error.hint }),
  });
}

async function openFirecracker(options: DriverOptions): Promise<VmmDriver> {
  let qemu: Promise<VmmDriver> | undefined;
  return new AdoptingDriver(await openFirecrackerDriver(options), {
    isIn: async (directory) => !(await isFirecrackers(directory)) && (await hasVmm(directory)),
    adopt: async (directory) => {
      qemu ??= openQemuDriver(options);
      return (await qemu).adopt(directory);
    },
  });
}

async function openQemu(options: DriverOptions): Promise<VmmDriver> {
  const { log } = options;
  return new AdoptingDriver(await openQemuDriver(options), {
    isIn: isFirecrackers,
    adopt: async (directory) => {
      const confinement = await Confinement.open(options.confinement ?? DEFAULT_CONFINEMENT, log);
      // Without confinement none was started, by this user.
      return confinement && adoptFirecracker({ confinement, log }, directory);
    },
  });
}
