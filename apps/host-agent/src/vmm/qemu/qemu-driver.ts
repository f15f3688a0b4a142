/** The QEMU driver: KVM where a probe boot works, software emulation (TCG) elsewhere. Each VM in a jail of its own where VMMs are confined. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, mkdir, stat, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '@fuse/contract';
import { type Logger, sleep } from '@fuse/runtime';
import { type Cell, Confinement, type ConfinementOptions, DEFAULT_CONFINEMENT } from '../../confinement/confinement.ts';
import { type Limits, limitsOf } from '../../confinement/limits.ts';
import type { BootSpec, DiskRate, MachineSpec, PassedDevice, RestoreSpec, Vmm, VmmDriver } from '../driver.ts';
import { hostCpu } from '../host-cpu.ts';
import { removeHostileDirectory } from '../hostile-file.ts';
import { linkFile } from '../link-file.ts';
import { VmmProcess } from '../process.ts';
import type { ChildStdio } from '../spawner.ts';
import {
  type Accelerator,
  bootArguments,
  LOG_FILE,
  MEMORY_FILE,
  machineFingerprint,
  nameArguments,
  QEMU_PROGRAM,
  type QemuMachine,
  RUN_DIRECTORY,
  restoreArguments,
} from './command-line.ts';
import { kvmBoots } from './kvm-probe.ts';
import { passedDeviceArguments, showDevices } from './passed-devices.ts';
import { jailed, prepareQemuRoot, qemuJail } from './qemu-jail.ts';
import { QemuVmm } from './qemu-vmm.ts';

const START_DEADLINE_MS = 30_000;
/** For a device all of its VM's memory is filled and kept in place first. */
const PINNING_MS_PER_GIB = 1_000;
const EXIT_NOTICE_MS = 500;
const OWNER_MAY_WRITE = 0o200;
/** Beside disk and memory, QEMU writes device state. */
const LEAST_FILE_BYTES = 67_108_864;

export interface QemuDriverOptions {
  /** Where the verdict on KVM is kept, and what a confined QEMU sees as `/`. */
  dataDirectory: string;
  /** What the probe boots. */
  kernelPath: string;
  log: Logger;
  confinement?: ConfinementOptions;
  diskRate?: DiskRate;
}

export async function openQemuDriver(options: QemuDriverOptions): Promise<VmmDriver> {
  const version = await qemuVersion();
  const accelerator = (await kvmBoots({ ...options, qemuVersion: version })) ? 'kvm' : 'tcg';
  const confinement = await Confinement.open(options.confinement ?? DEFAULT_CONFINEMENT, options.log);
  const jails =
    confinement === undefined
      ? undefined
      : { confinement, root: await prepareQemuRoot(options.dataDirectory, accelerator) };
  return new QemuDriver({ accelerator, version, jails, log: options.log, diskRate: options.diskRate });
}

interface Jails {
  confinement: Confinement;
  root: string;
}

/** What is started, seen from the host. */
interface Start {
  spec: MachineSpec;
  kernel?: { kernelPath: string; initramfsPath: string };
  sharedMemory: boolean;
  consolePath?: string | undefined;
  restoring?: { devicePath: string; layerPaths: readonly string[] };
  devices?: readonly PassedDevice[];
}

class QemuDriver implements VmmDriver {
  readonly name = 'qemu';
  readonly accelerator: Accelerator;
  readonly confined: boolean;
  readonly #version: string;
  readonly #jails: Jails | undefined;
  readonly #log: Logger;
  readonly #diskRate: DiskRate | undefined;
  /** Directories whose VMM is about to be there: nobody else gives their cells back. */
  readonly #starting = new Set<string>();
  #fingerprint: string | undefined;

  constructor(options: {
    accelerator: Accelerator;
    version: string;
    jails: Jails | undefined;
    log: Logger;
    diskRate: DiskRate | undefined;
  }) {
    this.accelerator = options.accelerator;
    this.#version = options.version;
    this.#jails = options.jails;
    this.confined = options.jails !== undefined;
    this.#log = options.log;
    this.#diskRate = options.diskRate;
  }

  async fingerprint(): Promise<string> {
    this.#fingerprint ??= await this.#computeFingerprint();
    return this.#fingerprint;
  }

  async #computeFingerprint(): Promise<string> {
    const hash = createHash('sha256').update(this.#version).update(machineFingerprint(this.accelerator));
    // Under KVM the guest has seen what the host's CPU can do, and goes on to use it.
    if (this.accelerator === 'kvm') hash.update(await hostCpu());
    return `qemu-${this.accelerator}-${hash.digest('hex').slice(0, 16)}`;
  }

  expectStart(): void {
    this.#jails?.confinement.expectStart();
  }

  async boot(spec: BootSpec, signal?: AbortSignal): Promise<Vmm> {
    const { kernelPath, initramfsPath, sharedMemoryPath, consolePath, devices = [] } = spec;
    const memoryPath = join(spec.directory, MEMORY_FILE);
    const memoryFile = sharedMemoryPath ?? memoryPath;
    await writeFile(memoryFile, '', { flag: 'wx', mode: 0o600 });
    await truncate(memoryFile, spec.shape.memoryMiB * 1_048_576);
    if (memoryFile !== memoryPath) await linkFile(memoryFile, memoryPath);
    const sharedMemory = sharedMemoryPath !== undefined;
    return this.#start({ spec, kernel: { kernelPath, initramfsPath }, sharedMemory, consolePath, devices }, signal);
  }

  async restore(spec: RestoreSpec, signal?: AbortSignal): Promise<Vmm> {
    // A name of our own keeps the bytes for as long as the VM lives, even when the snapshot is deleted.
    await linkFile(spec.snapshot.memoryPath, join(spec.directory, MEMORY_FILE));
    if (this.#jails === undefined) await letOwnerWrite(spec.snapshot.memoryPath);
    const { devicePath, layerPaths = [] } = spec.snapshot;
    return this.#start({ spec, sharedMemory: false, restoring: { devicePath, layerPaths } }, signal);
  }

  async adopt(directory: string): Promise<Vmm | undefined> {
    const process = await VmmProcess.adopt(directory, basename(QEMU_PROGRAM));
    if (this.#starting.has(directory)) return process === undefined ? undefined : new QemuVmm({ directory, process });
    const cell = this.#jails?.confinement.find(directory);
    if (process !== undefined) return this.#vmm({ directory, process }, cell);
    await this.#leave(directory, cell);
    return undefined;
  }

  async #start(start: Start, signal?: AbortSignal): Promise<Vmm> {
    signal?.throwIfAborted();
    const { directory } = start.spec;
    this.#starting.add(directory);
    try {
      await mkdir(join(directory, RUN_DIRECTORY), { mode: 0o700 });
      const limits = await this.#limits(start);
      const cell = this.#jails?.confinement.take(directory, limits);
      let process: VmmProcess;
      try {
        process = await this.#spawn(start, cell, limits);
      } catch (error) {
        await this.#leave(directory, cell);
        throw error;
      }
      const vmm = this.#vmm({ directory, process, consolePath: start.consolePath }, cell);
      try {
        await runningOrEnded(vmm, start, signal);
        process.up();
        return vmm;
      } catch (error) {
        await vmm.destroy();
        throw error;
      }
    } finally {
      this.#starting.delete(directory);
    }
  }

  async #spawn(start: Start, cell: Cell | undefined, limits: Limits): Promise<VmmProcess> {
    const { spec, sharedMemory, consolePath, restoring, kernel, devices = [] } = start;
    const { directory } = spec;
    const log = { path: join(directory, LOG_FILE), flags: 'a' } as const;
    const stdio: Exclude<ChildStdio, 'pipe'>[] = ['ignore', log, log];
    const inherited = (each: Exclude<ChildStdio, 'pipe'>): number => stdio.push(each) - 1;
    if (restoring !== undefined) inherited({ path: restoring.devicePath, flags: 'r' }); // before any other
    const consoleFd = consolePath === undefined ? undefined : inherited({ path: consolePath, flags: 'a' });
    const { network } = spec;
    const tap = network && { namespacePath: network.namespacePath, name: network.tapName };
    const machine: QemuMachine = {
      accelerator: this.accelerator,
      shape: spec.shape,
      memoryPath: cell === undefined ? MEMORY_FILE : jailed.memory,
      imagePath: cell === undefined ? spec.imagePath : jailed.image,
      writableDiskPath: cell === undefined ? spec.writableDiskPath : jailed.disk,
      runDirectory: RUN_DIRECTORY,
      sharedMemory,
      consoleFd,
      diskRate: this.#diskRate,
      ...(network === undefined || tap === undefined
        ? {}
        : { network: { mac: network.mac, tapFd: inherited({ tap }) } }),
    };
    const kernelFiles = cell === undefined ? kernel : { kernelPath: jailed.kernel, initramfsPath: jailed.initramfs };
    const args = [
      ...nameArguments(directory),
      ...(kernel === undefined || kernelFiles === undefined
        ? restoreArguments(machine)
        : bootArguments(machine, kernelFiles)),
      ...passedDeviceArguments(devices),
    ];
    if (cell === undefined || this.#jails === undefined)
      return VmmProcess.spawn({ program: QEMU_PROGRAM, args, directory, stdio });
    await chmod(directory, 0o711);
    const memoryPath = join(directory, MEMORY_FILE);
    const { writableDiskPath, imagePath } = spec;
    const shown = devices.length === 0 ? undefined : await showDevices(directory, devices);
    const ownMemory = sharedMemory ? [memoryPath] : [];
    cell.own([join(directory, RUN_DIRECTORY), writableDiskPath, ...ownMemory, ...(shown?.nodes ?? [])]);
    const files = { directory, imagePath, writableDiskPath, memoryPath, sharedMemory, kernel };
    const jail = qemuJail(this.#jails.root, cell, limits, {
      ...files,
      networkNamespacePath: network?.namespacePath,
      devices: shown,
    });
    return VmmProcess.spawn({ program: QEMU_PROGRAM, args, directory, stdio, jail, jailDirectory: jailed.directory });
  }

  async #limits({ spec, devices = [] }: Start): Promise<Limits> {
    const disk = await stat(spec.writableDiskPath);
    const largestFileBytes = Math.max(disk.size, spec.shape.memoryMiB * 1_048_576, LEAST_FILE_BYTES);
    return limitsOf(spec.shape, { accelerator: this.accelerator, largestFileBytes, deviceCount: devices.length });
  }

  #vmm(
    options: { directory: string; process: VmmProcess; consolePath?: string | undefined },
    cell: Cell | undefined,
  ): QemuVmm {
    return new QemuVmm({ ...options, uid: cell?.uid, onEnd: () => this.#leave(options.directory, cell) });
  }

  /** Its VMM is gone. What cannot be given back now is swept by the next host agent. */
  async #leave(directory: string, cell: Cell | undefined): Promise<{ outOfMemory: boolean }> {
    try {
      const end = (await cell?.end()) ?? { outOfMemory: false };
      await removeHostileDirectory(join(directory, RUN_DIRECTORY));
      return end;
    } catch (error) {
      this.#log.error({ err: error, directory }, 'cell of a VMM not given back');
      return { outOfMemory: false };
    }
  }
}

/**
 * QEMU opens a memory file for writing, though it maps it privately and writes nothing to it: as an ordinary user it may not, where the file is
 * for reading alone. What confines a QEMU opens the file for it.
 */
async function letOwnerWrite(path: string): Promise<void> {
  const { mode, uid } = await stat(path);
  if ((mode & OWNER_MAY_WRITE) !== 0 || uid !== process.geteuid?.()) return;
  await chmod(path, (mode & 0o7777) | OWNER_MAY_WRITE);
}

async function runningOrEnded(
  vmm: QemuVmm,
  { spec, restoring, devices = [] }: Start,
  signal?: AbortSignal,
): Promise<void> {
  const pinningMs = devices.length === 0 ? 0 : (spec.shape.memoryMiB / 1_024) * PINNING_MS_PER_GIB;
  const deadlineMs = START_DEADLINE_MS + pinningMs;
  const stop = new AbortController();
  const onOuter = () => stop.abort(signal?.reason);
  signal?.addEventListener('abort', onOuter, { once: true });
  const ended = vmm.exited.then((exit) => {
    const error = new AppError(
      'unavailable',
      `QEMU ended while starting: ${exit.logTail.trim() || 'it gave no reason'}`,
    );
    stop.abort(error);
    throw error;
  });
  ended.catch(() => {});
  try {
    await Promise.race([vmm.running(deadlineMs, restoring, stop.signal), ended]);
  } catch (error) {
    // A QEMU that is about to end closes its sockets first, and its log knows why.
    await Promise.race([ended, sleep(EXIT_NOTICE_MS)]);
    throw error;
  } finally {
    signal?.removeEventListener('abort', onOuter);
  }
}

async function qemuVersion(): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(QEMU_PROGRAM, ['--version'], { timeout: 10_000 });
    return stdout.split('\n')[0] ?? '';
  } catch (cause) {
    throw new AppError('unavailable', `cannot run ${QEMU_PROGRAM}`, {
      cause,
      hint: 'install the package qemu-system-x86',
    });
  }
}
