/**
 * What a VMM may take of its host. The guest's shape is what its VM may use; what the VMM needs beside that is here, and written down in docs/configuration.md.
 */
import type { MachineShape } from '../vmm/driver.ts';

const MIB = 1_048_576;
/** QEMU itself, its threads' stacks, and a page cache of its disk that is large enough to be quick. */
const OVERHEAD_MIB = 256;
/** TCG's translated code (`tb-size`) and what it knows about it. */
const TRANSLATION_MIB = 192;
/** Disks, timers and the guest channel are served beside the virtual CPUs. */
const CPU_ALLOWANCE = 0.5;
/** QEMU has up to 64 threads for disk requests, and a handful for itself. */
const BASE_THREADS = 96;
const OPEN_FILES = 256;
/** Two for each interrupt that a device may have. */
const OPEN_FILES_OF_DEVICE = 512;

export interface Limits {
  memoryBytes: number;
  /** In processors. */
  cpus: number;
  /** Its part of the processors, in proportion to others, when all are busy. */
  cpuWeight: number;
  threads: number;
  openFiles: number;
  fileSizeBytes: number;
}

export function limitsOf(
  shape: MachineShape,
  options: { accelerator: 'kvm' | 'tcg'; largestFileBytes: number; deviceCount?: number },
): Limits {
  const overheadMiB = OVERHEAD_MIB + (options.accelerator === 'tcg' ? TRANSLATION_MIB : 0);
  return {
    memoryBytes: (shape.memoryMiB + overheadMiB) * MIB,
    cpus: shape.cpus + CPU_ALLOWANCE,
    cpuWeight: shape.cpus,
    threads: BASE_THREADS + shape.cpus,
    openFiles: OPEN_FILES + OPEN_FILES_OF_DEVICE * (options.deviceCount ?? 0),
    fileSizeBytes: options.largestFileBytes,
  };
}
