/**
 * What Firecracker is told of a VM, in the order in which it is told. A snapshot's devices are those of its boot: restore repeats none of them, it only sets what is not part
 * of a snapshot (metrics, the serial port's rate) or may have changed (rates, the tap).
 */
import { AppError } from '@fuse/contract';
import type { MachineShape, NetworkCard } from '../driver.ts';
import { inside } from './chroot.ts';

export interface Rate {
  bytesPerSecond?: number | undefined;
  requestsPerSecond?: number | undefined;
}

export interface Rates {
  /** Of each disk. */
  disk?: Rate | undefined;
  /** Each way. */
  network?: Rate | undefined;
}

/** One call of the API. */
export interface ApiCall {
  method: 'PUT' | 'PATCH';
  path: string;
  body: object;
}

const MAX_CPUS = 32;
/** Below 3 are reserved. Every VM has its own host end, so one number does for all. */
const GUEST_CID = 3;
const INTERFACE = 'eth0';
const IMAGE_DRIVE = 'image';
const WRITABLE_DRIVE = 'writable';
const REFILL_MS = 1_000;
/** For what a guest's kernel has to say when it dies; a guest that says more is not heard. */
const SERIAL_BYTES_PER_SECOND = 4_096;
/** virtio-rng of a guest that reads without end. */
const ENTROPY_BYTES_PER_SECOND = 65_536;

/**
 * No serial port for programs. `reboot=k` is how a guest ends Firecracker, which a panic does at once. While a template is made the kernel writes to the port by itself.
 * Nobody in the guest loads the policies or reads the counters that are off.
 */
const KERNEL_ARGUMENTS =
  'reboot=k panic=-1 8250.nr_uarts=0 i8042.noaux i8042.nomux i8042.dumbkbd pci=off swiotlb=noforce quiet random.trust_cpu=on audit=0 psi=0 lsm=landlock';
const KERNEL_CONSOLE = 'earlyprintk=ttyS0,115200,keep';

const put = (path: string, body: object): ApiCall => ({ method: 'PUT', path, body });
const patch = (path: string, body: object): ApiCall => ({ method: 'PATCH', path, body });

export interface BootOrder {
  shape: MachineShape;
  network: Pick<NetworkCard, 'tapName' | 'mac'> | undefined;
  rates: Rates;
  /** The guest's console goes to a file. */
  hasConsole: boolean;
}

export function bootCalls({ shape, network, rates, hasConsole }: BootOrder): ApiCall[] {
  return [
    ...outputCalls(hasConsole),
    put('/machine-config', machineConfiguration(shape)),
    put('/boot-source', {
      kernel_image_path: inside.kernel,
      initrd_path: inside.initramfs,
      boot_args: hasConsole ? `${KERNEL_ARGUMENTS} ${KERNEL_CONSOLE}` : KERNEL_ARGUMENTS,
    }),
    put(`/drives/${IMAGE_DRIVE}`, drive(IMAGE_DRIVE, inside.image, { readOnly: true, rate: rates.disk })),
    put(`/drives/${WRITABLE_DRIVE}`, drive(WRITABLE_DRIVE, inside.disk, { readOnly: false, rate: rates.disk })),
    ...(network === undefined
      ? []
      : [
          put(`/network-interfaces/${INTERFACE}`, {
            iface_id: INTERFACE,
            host_dev_name: network.tapName,
            guest_mac: network.mac,
            rx_rate_limiter: rateLimiter(rates.network),
            tx_rate_limiter: rateLimiter(rates.network),
          }),
        ]),
    put('/vsock', { guest_cid: GUEST_CID, uds_path: inside.guestSocket }),
    put('/entropy', { rate_limiter: { bandwidth: bucket(ENTROPY_BYTES_PER_SECOND) } }),
    put('/actions', { action_type: 'InstanceStart' }),
  ];
}

/** Kernel and nothing else: what shows whether VMs boot here at all. */
export function probeCalls(memoryMiB: number): ApiCall[] {
  return [
    ...outputCalls(true),
    put('/machine-config', machineConfiguration({ cpus: 1, memoryMiB })),
    put('/boot-source', { kernel_image_path: inside.kernel, boot_args: `${KERNEL_ARGUMENTS} ${KERNEL_CONSOLE}` }),
    put('/actions', { action_type: 'InstanceStart' }),
  ];
}

/** Leaves the VM paused, its memory that of the snapshot's memory file. Pages that it writes from now on are tracked, so that saving its devices writes no more than these. */
export function loadCalls(options: {
  network: Pick<NetworkCard, 'tapName'> | undefined;
  advanceClock: boolean;
}): ApiCall[] {
  const { network, advanceClock } = options;
  return [
    ...outputCalls(false),
    put('/snapshot/load', {
      snapshot_path: inside.device,
      mem_backend: { backend_type: 'File', backend_path: inside.memory },
      track_dirty_pages: true,
      resume_vm: false,
      vsock_override: { uds_path: inside.guestSocket },
      ...(network === undefined
        ? {}
        : { network_overrides: [{ iface_id: INTERFACE, host_dev_name: network.tapName }] }),
      ...(advanceClock ? { clock_realtime: true } : {}),
    }),
  ];
}

/** A snapshot has the rates of its time. */
export function rateCalls(rates: Rates, hasNetwork: boolean): ApiCall[] {
  const drives = [IMAGE_DRIVE, WRITABLE_DRIVE].map((id) =>
    patch(`/drives/${id}`, { drive_id: id, rate_limiter: rateLimiter(rates.disk) }),
  );
  if (!hasNetwork) return drives;
  return [
    ...drives,
    patch(`/network-interfaces/${INTERFACE}`, {
      iface_id: INTERFACE,
      rx_rate_limiter: rateLimiter(rates.network),
      tx_rate_limiter: rateLimiter(rates.network),
    }),
  ];
}

export const pauseCall = patch('/vm', { state: 'Paused' });
export const resumeCall = patch('/vm', { state: 'Resumed' });

export const snapshotCall = (type: 'Full' | 'Diff'): ApiCall =>
  put('/snapshot/create', {
    snapshot_type: type,
    snapshot_path: inside.newDevice,
    mem_file_path: inside.newMemory,
  });

/** Everything of the above that a snapshot depends on. */
export const configurationFingerprint = (): string =>
  JSON.stringify(
    bootCalls({
      shape: { cpus: 1, memoryMiB: 0 },
      network: { tapName: '', mac: '' },
      rates: {},
      hasConsole: true,
    }),
  );

/** Logs and what the guest writes to its serial port are standard output, unless there is a console file. */
function outputCalls(hasConsole: boolean): ApiCall[] {
  return [
    put('/metrics', { metrics_path: inside.metrics }),
    put(
      '/serial',
      hasConsole ? { serial_out_path: inside.console } : { rate_limiter: bucket(SERIAL_BYTES_PER_SECOND) },
    ),
  ];
}

function machineConfiguration({ cpus, memoryMiB }: MachineShape): object {
  if (cpus > MAX_CPUS)
    throw new AppError('unavailable', `Firecracker gives a VM at most ${MAX_CPUS} CPUs, not ${cpus}`);
  return { vcpu_count: cpus, mem_size_mib: memoryMiB, smt: false, track_dirty_pages: false };
}

/** The guest's flushes are not passed on: the disk need not survive the machine that its VM does not survive either. */
function drive(id: string, path: string, { readOnly, rate }: { readOnly: boolean; rate: Rate | undefined }): object {
  return {
    drive_id: id,
    path_on_host: path,
    is_root_device: false,
    is_read_only: readOnly,
    cache_type: 'Unsafe',
    io_engine: 'Sync',
    rate_limiter: rateLimiter(rate),
  };
}

function rateLimiter({ bytesPerSecond, requestsPerSecond }: Rate = {}): object {
  return { bandwidth: bucket(bytesPerSecond), ops: bucket(requestsPerSecond) };
}

/** Size 0 is no limit, and takes away one that there is. */
const bucket = (perSecond: number | undefined): object => ({
  size: perSecond ?? 0,
  refill_time: perSecond === undefined ? 0 : REFILL_MS,
});
