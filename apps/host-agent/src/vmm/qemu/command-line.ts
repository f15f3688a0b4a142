/**
 * QEMU's command line. A snapshot can be restored only by a machine with the same devices in the same order, so boot and restore
 * share everything here but the kernel, the sharing of the memory file and where the console goes.
 *
 * QEMU runs in the VM's directory: what it creates there has short relative names, whatever the directory's length.
 */
import { join } from 'node:path';
import { GUEST_PORT_NAME } from '@fuse/host-protocol';
import type { DiskRate, MachineShape } from '../driver.ts';
import { hostTscKhz } from './host-tsc.ts';

export type Accelerator = 'kvm' | 'tcg';

export const QEMU_PROGRAM = '/usr/bin/qemu-system-x86_64';
/** Debian and Ubuntu put it here. */
export const FIRMWARE_PATH = '/usr/share/qemu/qboot.rom';
export const QMP_SOCKET = 'qmp.sock';
export const GUEST_SOCKET = 'guest.sock';
export const MEMORY_FILE = 'memory';
export const LOG_FILE = 'vmm.log';
/** Where its sockets are, in the VM's directory: all that it may write to there. */
export const RUN_DIRECTORY = 'run';
/** The inherited descriptor of the device state, the first of those that a VM may have. */
const DEVICE_STATE_FD = 3;
export const DEVICE_STATE_URI = `fd:${DEVICE_STATE_FD}`;
const CONSOLE_FDSET = 1;

/**
 * TCG keeps translated code, up to this much for each VM; beyond it starts afresh. Unbounded it would take a GiB of the host's memory for a
 * VM that runs for long.
 */
const acceleration: Record<Accelerator, string> = {
  kvm: 'kvm',
  tcg: 'tcg,tb-size=128',
};

/**
 * Under TCG the CPU offers x86-64-v2 and RDRAND. More costs: a C library that finds AVX2 uses it in its string functions, which TCG
 * emulates slowly. Without RDRAND the guest's random generator is not ready before its first second is over.
 */
const cpuModel: Record<Accelerator, string> = {
  kvm: 'host,migratable=on',
  tcg: 'Nehalem,+rdrand',
};

/** A panic or reboot of the guest ends the VMM (with -no-reboot). Nobody in the guest loads the policies or reads the counters that are off. */
const commonKernelArguments = 'console=ttyS0 quiet panic=-1 random.trust_cpu=on audit=0 psi=0 lsm=landlock';

/**
 * Under TCG more is off that protects a guest from itself, each for speed: address space randomisation makes TCG translate every program
 * anew at each start (27 ms in place of 4 for a shell); mitigations guard against hardware that is not there; zeroing all memory
 * on allocation and checking all copies is slow without hardware. TCG's clock is the host's, so the TSC needs no watchdog, which on a busy host finds
 * it wanting and turns to a timer that costs a trap each time it is read.
 */
function kernelArguments(accelerator: Accelerator): string {
  if (accelerator === 'kvm') return commonKernelArguments;
  const khz = hostTscKhz();
  const clock = khz === undefined ? 'tsc=reliable' : `tsc=reliable tsc_early_khz=${khz}`;
  return `${commonKernelArguments} norandmaps mitigations=off init_on_alloc=0 hardened_usercopy=off ${clock}`;
}

export interface QemuMachine {
  accelerator: Accelerator;
  shape: MachineShape;
  /** Shared: guest memory is the file. Private: the file is read and never written. */
  memoryPath: string;
  sharedMemory: boolean;
  imagePath: string;
  writableDiskPath: string;
  /** Where sockets go, seen from its working directory; '' for that itself. */
  runDirectory: string;
  /** A descriptor open for appending. Without: the console goes nowhere. */
  consoleFd?: number | undefined;
  /** Of both disks together. */
  diskRate?: DiskRate | undefined;
  /** The descriptor of a tap. */
  network?: { tapFd: number; mac: string } | undefined;
}

export interface QemuKernel {
  kernelPath: string;
  initramfsPath: string;
}

/** Commas separate QEMU's options; one within a value is doubled. */
const quoted = (value: string): string => value.replaceAll(',', ',,');

export function machineArguments(machine: QemuMachine): string[] {
  const { accelerator, shape, memoryPath, sharedMemory, imagePath, writableDiskPath, runDirectory, consoleFd } =
    machine;
  const throttled = throttling(machine.diskRate);
  return [
    '-nodefaults',
    '-no-user-config',
    '-no-reboot',
    ...['-display', 'none'],
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ...['-accel', acceleration[accelerator]],
    ...[
      '-machine',
      `q35,memory-backend=ram,suppress-vmdesc=on,sata=off,smbus=off,usb=off,hpet=off,` +
        'vmport=off,smm=off,graphics=off,dump-guest-core=off,mem-merge=off',
    ],
    ...['-global', 'migration.send-configuration=off'],
    ...['-cpu', cpuModel[accelerator]],
    ...['-smp', String(shape.cpus)],
    ...['-m', `${shape.memoryMiB}M`],
    ...[
      '-object',
      `memory-backend-file,id=ram,size=${shape.memoryMiB}M,mem-path=${quoted(memoryPath)},` +
        `share=${sharedMemory ? 'on' : 'off'},merge=off,dump=off`,
    ],
    ...['-bios', FIRMWARE_PATH],
    ...['-qmp', `unix:${join(runDirectory, QMP_SOCKET)},server=on,wait=off`],
    ...(consoleFd === undefined
      ? ['-chardev', 'null,id=console']
      : [
          ...['-add-fd', `fd=${consoleFd},set=${CONSOLE_FDSET}`],
          ...['-chardev', `file,id=console,path=/dev/fdset/${CONSOLE_FDSET},append=on`],
        ]),
    ...['-device', 'isa-serial,chardev=console'],
    ...['-chardev', `socket,id=guest,path=${join(runDirectory, GUEST_SOCKET)},server=on,wait=off`],
    ...['-device', 'virtio-serial-pci,max_ports=2,disable-legacy=on'],
    ...['-device', `virtserialport,chardev=guest,name=${GUEST_PORT_NAME}`],
    // Many VMs read one image, and its file never changes: no lock.
    ...['-drive', `if=none,id=image,file=${quoted(imagePath)},format=raw,read-only=on,file.locking=off${throttled}`],
    ...['-device', 'virtio-blk-pci,drive=image,disable-legacy=on'],
    // The disk need not survive the machine that its VM does not survive either: guest flushes are not passed on. Whoever keeps a copy
    // flushes that. What the guest discards or zeroes goes back to the host.
    ...[
      '-drive',
      `if=none,id=writable,file=${quoted(writableDiskPath)},format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap${throttled}`,
    ],
    ...['-device', 'virtio-blk-pci,drive=writable,disable-legacy=on'],
    ...['-device', 'virtio-rng-pci,disable-legacy=on'],
    ...networkArguments(machine.network),
  ];
}

/** One account for both disks. It is no part of the machine that the guest sees, so snapshots fit whatever it says. */
function throttling({ bytesPerSecond, requestsPerSecond }: DiskRate = {}): string {
  if (bytesPerSecond === undefined && requestsPerSecond === undefined) return '';
  const bytes = bytesPerSecond === undefined ? '' : `,throttling.bps-total=${bytesPerSecond}`;
  const requests = requestsPerSecond === undefined ? '' : `,throttling.iops-total=${requestsPerSecond}`;
  return `${bytes}${requests},throttling.group=disks`;
}

/** The last of the devices: those before it are where they are without one. Nothing boots from it, so it has no ROM. */
function networkArguments(network: QemuMachine['network']): string[] {
  if (network === undefined) return [];
  return [
    ...['-netdev', `tap,id=network,fd=${network.tapFd},vhost=off`],
    ...['-device', `virtio-net-pci,netdev=network,mac=${network.mac},romfile=,disable-legacy=on`],
  ];
}

/** Whose it is, for people and programs that look at processes: in its jail nothing else on its command line says so. */
export const nameArguments = (directory: string): string[] => ['-name', `guest=${quoted(directory)}`];

export function bootArguments(machine: QemuMachine, kernel: QemuKernel): string[] {
  return [
    ...machineArguments(machine),
    ...['-kernel', kernel.kernelPath],
    ...['-initrd', kernel.initramfsPath],
    ...['-append', kernelArguments(machine.accelerator)],
  ];
}

/**
 * No kernel: it is in the memory file, and loading it again would cost its 50 MB. Devices are loaded once QMP asks for it. Nobody is told of the card, for
 * which the guest would be woken several times: its address is not its own yet.
 */
export function restoreArguments(machine: QemuMachine): string[] {
  return [...machineArguments(machine), ...['-global', 'migration.announce-rounds=0'], '-incoming', 'defer'];
}

/** Boots a kernel with nothing beside it, which ends in its panic and so in the end of QEMU. */
export function probeArguments(accelerator: Accelerator, kernelPath: string, consolePath: string): string[] {
  return [
    '-nodefaults',
    '-no-user-config',
    '-no-reboot',
    ...['-display', 'none'],
    ...['-accel', acceleration[accelerator]],
    ...['-machine', 'q35'],
    ...['-cpu', cpuModel[accelerator]],
    ...['-m', '256M'],
    ...['-bios', FIRMWARE_PATH],
    ...['-chardev', `file,id=console,path=${quoted(consolePath)}`],
    ...['-device', 'isa-serial,chardev=console'],
    ...['-kernel', kernelPath],
    ...['-append', kernelArguments(accelerator)],
  ];
}

/** Everything on the command line that a snapshot depends on, paths aside. */
export function machineFingerprint(accelerator: Accelerator): string {
  const machine = machineArguments({
    accelerator,
    shape: { cpus: 0, memoryMiB: 0 },
    memoryPath: '',
    sharedMemory: false,
    imagePath: '',
    writableDiskPath: '',
    runDirectory: '',
    network: { tapFd: 0, mac: '' },
  });
  return [...machine, kernelArguments(accelerator)].join(' ');
}
