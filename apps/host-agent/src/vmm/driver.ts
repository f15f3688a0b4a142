/**
 * The port to a virtual machine monitor: one process per VM, its own session, everything that is needed to find and adopt it
 * again in its own directory. Two drivers share it (`qemu/`, `firecracker/`) and one contract suite.
 *
 * A VM's disks are always the same two: `vda`, the image, read-only and shared; `vdb`, this VM's writable sparse ext4 file.
 * Nothing here talks to the guest: `openGuestChannel` gives the raw bytes, guest/ does the rest.
 */
import type { Duplex } from 'node:stream';

export interface MachineShape {
  cpus: number;
  memoryMiB: number;
}

/** What a VM's disks may do together. */
export interface DiskRate {
  bytesPerSecond?: number | undefined;
  requestsPerSecond?: number | undefined;
}

/** Files of one instant of a VM. The writable disk of that instant lies beside them, made by the caller while the VM is stopped. */
export interface SnapshotFiles {
  /** Guest memory, sparse, `memoryMiB` long. Mapped privately by every VM restored from it: never written again. */
  memoryPath: string;
  /** What differs from `memoryPath`: layers (snapshots/memory/layer-file.ts), oldest first. A VM reads them while it starts, and has their pages to itself. */
  layerPaths?: readonly string[];
  /** Device state. */
  devicePath: string;
}

export interface MachineSpec {
  /** Exists, empty but for what the caller put there; private to this VM. Sockets, pid file and VMM log go here. */
  directory: string;
  shape: MachineShape;
  imagePath: string;
  writableDiskPath: string;
  /** Absent: no network card. */
  network?: NetworkCard;
}

/** The card's other end: a tap in a network namespace that the VM has to itself. The VMM runs in that namespace; without a card, in an empty one of its own. */
export interface NetworkCard {
  /** /run/netns/<name> */
  namespacePath: string;
  tapName: string;
  /** At boot. After a restore the guest is told its own. */
  mac: string;
}

/** A device of the host that a VM gets as its own. */
export interface PassedDevice {
  bus: 'pci' | 'mdev';
  /** In sysfs: a PCI address, or a uuid. */
  name: string;
  /** Its IOMMU group, which one VM has at a time. */
  group: string;
  /** Of the group, and of VFIO itself. */
  nodePath: string;
  containerPath: string;
}

export interface BootSpec extends MachineSpec {
  /** With any, what the VM holds cannot be saved: it is neither captured nor restored. */
  devices?: readonly PassedDevice[];
  kernelPath: string;
  initramfsPath: string;
  /** When given, guest memory *is* this file (shared mapping), so that it is a snapshot's memory file once the VM is stopped. */
  sharedMemoryPath?: string;
  /** Guest console, kept while a template is made so that a failed boot can explain itself; bounded by the driver. */
  consolePath?: string;
}

/** Where the files of one instant of a VM go. */
export interface CaptureFiles {
  /** Becomes another name of the memory file that the VM runs on. */
  memoryPath: string;
  /** What differs from it: all that the VM wrote since it was started. */
  layerPath: string;
  devicePath: string;
}

export interface RestoreSpec extends MachineSpec {
  kernelPath: string;
  initramfsPath: string;
  snapshot: SnapshotFiles;
}

export interface VmmExit {
  code: number | null;
  signal: string | null;
  /** The end of the VMM's log, at most 4 KiB, for people. */
  logTail: string;
  /** The kernel killed it because it had all the memory that it may have. */
  outOfMemory: boolean;
}

export interface Vmm {
  readonly pid: number;
  /** Settles once, when the process is gone, for whatever reason; never rejects. */
  readonly exited: Promise<VmmExit>;
  pause(signal?: AbortSignal): Promise<void>;
  resume(signal?: AbortSignal): Promise<void>;
  /**
   * Of a *paused* VM that was booted with `sharedMemoryPath`, which is the memory file: only device state is written. Both are flushed
   * before this resolves.
   */
  snapshot(files: SnapshotFiles, signal?: AbortSignal): Promise<void>;
  /**
   * Memory and devices of a *paused* VM that does not run on shared memory, into files that do not exist. Fast, since the VM stands still meanwhile: nothing is
   * flushed. What is left of a failure is the caller's to remove.
   */
  capture(files: CaptureFiles, signal?: AbortSignal): Promise<void>;
  /** A new raw connection to the guest's port; the earlier one, if any, is closed. No greeting has been read. */
  openGuestChannel(signal?: AbortSignal): Promise<Duplex>;
  /** Ends the process for good and waits until it is gone. Idempotent; works in every state, hung VMMs included. */
  destroy(): Promise<void>;
}

export interface VmmDriver {
  readonly name: 'qemu' | 'firecracker';
  readonly accelerator: 'kvm' | 'tcg';
  /** Whether each VMM has a user, a root and limits of its own. */
  readonly confined: boolean;
  /** Whatever must be equal for a snapshot to be restorable: program, version, machine type, CPU model, accelerator. Part of every template key. */
  fingerprint(): Promise<string>;
  /** A start will follow in some milliseconds, or will not: what makes it quicker may begin. */
  expectStart?(): void;
  /** Resolves with the guest running its kernel, not yet answering. On failure nothing of it is left. */
  boot(spec: BootSpec, signal?: AbortSignal): Promise<Vmm>;
  /** Resolves with the VM running from the snapshot's instant. On failure nothing of it is left. */
  restore(spec: RestoreSpec, signal?: AbortSignal): Promise<Vmm>;
  /** The VM of this directory, when its process (by pid *and* start time) still runs; otherwise undefined. */
  adopt(directory: string): Promise<Vmm | undefined>;
}
