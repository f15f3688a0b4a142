/** The Firecracker driver: KVM, each VMM started by Firecracker's jailer. */
import { createHash } from 'node:crypto';
import { truncate, writeFile } from 'node:fs/promises';
import { release } from 'node:os';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { type Logger, sleep } from '@fuse/runtime';
import type { Confinement } from '../../confinement/confinement.ts';
import { isAtLeast } from '../../doctor/version.ts';
import type { BootSpec, RestoreSpec, Vmm, VmmDriver } from '../driver.ts';
import { hostCpu } from '../host-cpu.ts';
import { adoptFirecracker } from './adopt.ts';
import { REFUSED } from './api.ts';
import { inside, linkHere } from './chroot.ts';
import { type FirecrackerVmm, MEMORY_FILE } from './firecracker-vmm.ts';
import { bootCalls, configurationFingerprint, loadCalls, type Rates, rateCalls } from './machine-configuration.ts';
import type { FirecrackerPrograms } from './programs.ts';
import { type StartMeans, type StartOrder, startFirecracker } from './start.ts';

const MIB = 1_048_576;
const EXIT_NOTICE_MS = 600;
/** Older hosts cannot advance a guest's clock by what it stood still; the guest is told the time in any case. */
const CLOCK_KERNEL = '5.16';

export interface FirecrackerDriverOptions {
  programs: FirecrackerPrograms;
  confinement: Confinement;
  rates?: Rates;
  log: Logger;
}

export class FirecrackerDriver implements VmmDriver {
  readonly name = 'firecracker';
  readonly accelerator = 'kvm';
  readonly confined = true;
  readonly #means: StartMeans;
  readonly #rates: Rates;
  readonly #advanceClock: boolean;
  /** Directories whose VMM is about to be there: nobody else gives their cells back. */
  readonly #starting = new Set<string>();

  constructor({ programs, confinement, rates = {}, log }: FirecrackerDriverOptions) {
    this.#means = { programs, confinement, log };
    this.#rates = rates;
    this.#advanceClock = isAtLeast(release().replace(/[^\d.].*$/, ''), CLOCK_KERNEL);
  }

  /** No CPU template: the guest has seen what the host's CPU can do, and goes on to use it. */
  async fingerprint(): Promise<string> {
    const { version, snapshotVersion } = this.#means.programs;
    const hash = createHash('sha256');
    for (const part of [version, snapshotVersion, configurationFingerprint(), await hostCpu()])
      hash.update(`${part}\n`);
    return `firecracker-kvm-${hash.digest('hex').slice(0, 16)}`;
  }

  expectStart(): void {
    this.#means.confinement.expectStart();
  }

  async boot(spec: BootSpec, signal?: AbortSignal): Promise<Vmm> {
    const { directory, shape, network, sharedMemoryPath, consolePath } = spec;
    // Firecracker boots on memory that is in no file. The file is what a snapshot of it lies over, or is written to.
    const memoryPath = join(directory, MEMORY_FILE);
    await writeFile(sharedMemoryPath ?? memoryPath, '', { flag: 'wx', mode: 0o600 });
    await truncate(sharedMemoryPath ?? memoryPath, shape.memoryMiB * MIB);
    if (consolePath !== undefined) await writeFile(consolePath, '', { flag: 'a' });
    const calls = bootCalls({ shape, network, rates: this.#rates, hasConsole: consolePath !== undefined });
    const order: StartOrder = {
      directory,
      shape,
      networkNamespacePath: network?.namespacePath,
      record: { memory: 'booted', sharedMemoryPath, consolePath },
      links: [
        { path: spec.kernelPath, name: inside.kernel, access: 'readable' },
        { path: spec.initramfsPath, name: inside.initramfs, access: 'readable' },
        { path: spec.imagePath, name: inside.image, access: 'readable' },
        { path: spec.writableDiskPath, name: inside.disk, access: 'owned' },
        ...(consolePath === undefined ? [] : [{ path: consolePath, name: inside.console, access: 'owned' } as const]),
      ],
    };
    return this.#start(order, (vmm) => vmm.configure(calls, signal), signal);
  }

  async restore(spec: RestoreSpec, signal?: AbortSignal): Promise<Vmm> {
    const { directory, network, snapshot } = spec;
    const memoryPath = join(directory, MEMORY_FILE);
    // A name of our own keeps the bytes for as long as the VM lives, even when the snapshot is deleted.
    await linkHere(snapshot.memoryPath, memoryPath);
    const order: StartOrder = {
      directory,
      shape: spec.shape,
      networkNamespacePath: network?.namespacePath,
      record: { memory: 'restored' },
      links: [
        { path: memoryPath, name: inside.memory, access: 'readable' },
        { path: snapshot.devicePath, name: inside.device, access: 'readable' },
        { path: spec.imagePath, name: inside.image, access: 'readable' },
        { path: spec.writableDiskPath, name: inside.disk, access: 'owned' },
      ],
    };
    const load = loadCalls({ network, advanceClock: this.#advanceClock });
    const rates = rateCalls(this.#rates, network !== undefined);
    return this.#start(
      order,
      async (vmm) => {
        await vmm.configure(load, signal);
        await vmm.run(snapshot.layerPaths ?? [], rates, signal);
      },
      signal,
    );
  }

  adopt(directory: string): Promise<Vmm | undefined> {
    return adoptFirecracker(this.#means, directory, this.#starting.has(directory));
  }

  async #start(
    order: StartOrder,
    configure: (vmm: FirecrackerVmm) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<Vmm> {
    this.#starting.add(order.directory);
    try {
      return await this.#started(await startFirecracker(this.#means, order, signal), configure, signal);
    } finally {
      this.#starting.delete(order.directory);
    }
  }

  async #started(
    vmm: FirecrackerVmm,
    configure: (vmm: FirecrackerVmm) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<Vmm> {
    try {
      await configure(vmm);
      return vmm;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      // One that is about to end says why in its log, if not in its answer.
      const exit = await Promise.race([vmm.exited, sleep(EXIT_NOTICE_MS, signal).catch(() => undefined)]);
      await vmm.destroy();
      signal?.throwIfAborted();
      const logTail = exit?.logTail.trim() ?? '';
      if (logTail === '' || why.startsWith(REFUSED)) throw error;
      throw new AppError('unavailable', `Firecracker ended while starting (${why}): ${logTail}`, { cause: error });
    }
  }
}
