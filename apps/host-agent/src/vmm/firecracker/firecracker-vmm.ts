/** One running Firecracker: what can be done to it through its API, its vsock and its process. */
import { appendFile, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Duplex } from 'node:stream';
import { AppError } from '@fuse/contract';
import { GUEST_VSOCK_PORT } from '@fuse/host-protocol';
import { type Logger, sleep, withDeadline } from '@fuse/runtime';
import type { Cell } from '../../confinement/confinement.ts';
import { captureMemory } from '../capture-memory.ts';
import { onDiskLoss } from '../disk-loss.ts';
import type { CaptureFiles, SnapshotFiles, Vmm, VmmExit } from '../driver.ts';
import { removeHostileDirectory } from '../hostile-file.ts';
import { linkFile } from '../link-file.ts';
import { boundFile, readTail } from '../log-file.ts';
import type { VmmProcess } from '../process.ts';
import { flushDirectoryOf, flushFile } from '../sparse-copy.ts';
import { FirecrackerApi } from './api.ts';
import { type Chroot, inside } from './chroot.ts';
import { Counters } from './counters.ts';
import { copyMemory, layerOfMemory } from './full-memory.ts';
import { applyLayersBeneath } from './loaded-memory.ts';
import { type ApiCall, pauseCall, resumeCall, snapshotCall } from './machine-configuration.ts';
import type { MachineRecord } from './record.ts';
import { connectToGuestPort } from './vsock.ts';

export const LOG_FILE = 'vmm.log';
export const MEMORY_FILE = 'memory';
export const COUNTERS_FILE = 'counters';
const COMMAND_DEADLINE_MS = 30_000;
const LOG_BOUND_BYTES = 1_048_576;
const LOOK_MS = 5_000;
const SOCKET_POLL_MS = 2;
/** Of devices, interrupts and CPUs: tens of KiB. */
const MAX_DEVICE_BYTES = 67_108_864;
/** Files and devices that it is given, two sockets, and what it saves. More is none of Firecracker's doing. */
const MAX_ENTRIES = 64;
const MIB = 1_048_576;

export interface FirecrackerVmmOptions {
  directory: string;
  process: VmmProcess;
  /** Undefined: it was given back while the VMM ran on, which only a sweep on another boot does. */
  cell: Cell | undefined;
  chroot: Chroot;
  record: MachineRecord;
  log: Logger;
}

export class FirecrackerVmm implements Vmm {
  readonly exited: Promise<VmmExit>;
  readonly #options: FirecrackerVmmOptions;
  readonly #api: FirecrackerApi;
  #channel: Duplex | undefined;
  #hasExited = false;
  /** Commands go one after the other, as Firecracker does them. */
  #lastCommand: Promise<unknown> = Promise.resolve();

  constructor(options: FirecrackerVmmOptions) {
    this.#options = options;
    const { directory, chroot, record, process, log } = options;
    this.#api = new FirecrackerApi({
      connect: () => chroot.connect(inside.apiSocket),
      deadlineMs: COMMAND_DEADLINE_MS,
    });
    const bounded = [join(directory, LOG_FILE), ...(record.consolePath === undefined ? [] : [record.consolePath])];
    const counters = new Counters(join(directory, COUNTERS_FILE));
    const look = () => {
      for (const path of bounded) boundFile(path, LOG_BOUND_BYTES).catch(() => {});
      counters.collect();
      this.#endUnlessTidy().catch(() => {}); // it has just ended
    };
    const looking = setInterval(look, LOOK_MS).unref();
    const noMoreLoss = onDiskLoss(directory, look);
    this.exited = process.exited.then(async (end) => {
      clearInterval(looking);
      noMoreLoss();
      this.#hasExited = true;
      this.#channel?.destroy();
      counters.collect();
      log.info({ pid: process.pid, ...end, counters: counters.totals }, 'Firecracker has ended');
      const outOfMemory = await this.#endCell();
      return { ...end, logTail: await readTail(join(directory, LOG_FILE)).catch(() => ''), outOfMemory };
    });
  }

  get pid(): number {
    return this.#options.process.pid;
  }

  /** Waits for the API, then makes these calls in their order. */
  async configure(calls: readonly ApiCall[], signal?: AbortSignal): Promise<void> {
    await this.#command(async () => {
      await withDeadline(COMMAND_DEADLINE_MS, 'start of Firecracker', (inner) => this.#apiAnswers(inner), signal);
      await this.#calls(calls, signal);
    }, signal);
  }

  /** Of a VM that has been loaded: its own pages go over the memory file, then it runs. */
  async run(layerPaths: readonly string[], calls: readonly ApiCall[], signal?: AbortSignal): Promise<void> {
    await this.#command(async () => {
      await applyLayersBeneath({ pid: this.pid, memoryPath: this.#memoryPath, layerPaths }, signal);
      await this.#calls([...calls, resumeCall], signal);
    }, signal);
  }

  async pause(signal?: AbortSignal): Promise<void> {
    await this.#command(() => this.#calls([pauseCall], signal), signal);
  }

  async resume(signal?: AbortSignal): Promise<void> {
    await this.#command(() => this.#calls([resumeCall], signal), signal);
  }

  async capture({ memoryPath, devicePath, layerPath }: CaptureFiles, signal?: AbortSignal): Promise<void> {
    await this.#command(async () => {
      if (this.#options.record.memory === 'booted') {
        await this.#save(
          'Full',
          devicePath,
          (memory) => layerOfMemory(memory, layerPath, this.#memoryBytes, signal),
          signal,
        );
        await linkFile(this.#memoryPath, memoryPath);
        return;
      }
      await this.#save('Diff', devicePath, async () => {}, signal);
      await linkFile(this.#memoryPath, memoryPath);
      await captureMemory({ pid: this.pid, memoryPath, layerPath }, signal);
    }, signal);
  }

  async snapshot(files: SnapshotFiles, signal?: AbortSignal): Promise<void> {
    const { sharedMemoryPath } = this.#options.record;
    if (sharedMemoryPath === undefined || resolve(files.memoryPath) !== resolve(sharedMemoryPath))
      throw new AppError('conflict', `the VM was not booted for ${files.memoryPath}`);
    await this.#command(
      () =>
        this.#save(
          'Full',
          files.devicePath,
          (memory) => copyMemory(memory, files.memoryPath, this.#memoryBytes, signal),
          signal,
        ),
      signal,
    );
    for (const path of [files.devicePath, files.memoryPath]) {
      await flushFile(path);
      await flushDirectoryOf(path);
    }
  }

  async openGuestChannel(signal?: AbortSignal): Promise<Duplex> {
    this.#channel?.destroy();
    try {
      const socket = await this.#options.chroot.connect(inside.guestSocket);
      this.#channel = socket;
      if (this.#hasExited) socket.destroy();
      await connectToGuestPort(socket, GUEST_VSOCK_PORT, signal);
      return socket;
    } catch (cause) {
      signal?.throwIfAborted();
      throw this.#failure('connect to the guest', cause);
    }
  }

  async destroy(): Promise<void> {
    this.#channel?.destroy();
    await this.#options.process.kill();
    await this.exited;
  }

  /** Somebody else than Firecracker is filling the host's disk. */
  async #endUnlessTidy(): Promise<void> {
    const { cell, chroot, directory } = this.#options;
    if (cell === undefined) return;
    const limits = { entries: MAX_ENTRIES, bytes: this.#memoryBytes + 2 * MAX_DEVICE_BYTES };
    if (await chroot.isWithin(limits, { pid: this.pid, uid: cell.uid }, cell.ownedPaths)) return;
    await appendFile(join(directory, LOG_FILE), 'ended by the host: it filled its root directory\n');
    await this.destroy();
  }

  get #memoryPath(): string {
    return join(this.#options.directory, MEMORY_FILE);
  }

  get #memoryBytes(): number {
    return this.#options.record.memoryMiB * MIB;
  }

  async #calls(calls: readonly ApiCall[], signal: AbortSignal | undefined): Promise<void> {
    for (const { method, path, body } of calls)
      if (method === 'PUT') await this.#api.put(path, body, signal);
      else await this.#api.patch(path, body, signal);
  }

  /**
   * Devices to `devicePath`. Firecracker always writes memory too: all of it, or what changed since it last did. Neither is left; `take` has it before. What changed is not
   * all that the VM has of its own, so it is not used: the process's own pages are.
   */
  async #save(
    type: 'Full' | 'Diff',
    devicePath: string,
    take: (memory: Awaited<ReturnType<Chroot['openFile']>>) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<void> {
    signal?.throwIfAborted();
    const { chroot } = this.#options;
    const state = await this.#api.state(signal);
    if (state !== 'Paused') throw new AppError('conflict', `the VM is ${state.toLowerCase()}, not paused`);
    try {
      await this.#calls([snapshotCall(type)], signal);
      await chroot.copyOut(inside.newDevice, devicePath, MAX_DEVICE_BYTES);
      const memory = await chroot.openFile(inside.newMemory);
      try {
        await take(memory);
      } finally {
        await memory.close();
      }
    } finally {
      await chroot.removeFiles([inside.newDevice, inside.newMemory]);
    }
  }

  /** The name appears at bind, connecting works from listen on, moments later. */
  async #apiAnswers(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      try {
        (await this.#options.chroot.connect(inside.apiSocket)).destroy();
        return;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (this.#hasExited || (code !== 'ENOENT' && code !== 'ECONNREFUSED')) throw error;
      }
      await sleep(SOCKET_POLL_MS, signal);
    }
  }

  async #endCell(): Promise<boolean> {
    const { cell, chroot, directory, log } = this.#options;
    try {
      await removeHostileDirectory(chroot.basePath);
      await rm(join(directory, COUNTERS_FILE), { force: true });
      return (await cell?.end())?.outOfMemory ?? false;
    } catch (error) {
      log.error({ err: error, directory }, 'the cell of a VMM could not be given back');
      return false;
    }
  }

  #command<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const command = this.#lastCommand.then(async () => {
      try {
        return await work();
      } catch (cause) {
        signal?.throwIfAborted();
        throw this.#failure('control Firecracker', cause);
      }
    });
    this.#lastCommand = command.catch(() => {});
    return command;
  }

  #failure(what: string, cause: unknown): AppError {
    if (this.#hasExited) return new AppError('vm_lost', 'the VM has ended', { cause });
    if (cause instanceof AppError) return cause;
    return new AppError('unavailable', `cannot ${what}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
}
