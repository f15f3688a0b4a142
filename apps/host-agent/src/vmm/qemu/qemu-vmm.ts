/** One running QEMU: what can be done to it through its control socket, its guest port and its process. */
import { existsSync } from 'node:fs';
import { appendFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { AppError } from '@fuse/contract';
import { sleep, withDeadline } from '@fuse/runtime';
import { applyLayers } from '../apply-layers.ts';
import { captureMemory } from '../capture-memory.ts';
import { onDiskLoss } from '../disk-loss.ts';
import { isWithin } from '../disk-watch.ts';
import type { CaptureFiles, SnapshotFiles, Vmm, VmmExit } from '../driver.ts';
import { copyHostileFile } from '../hostile-file.ts';
import { linkFile } from '../link-file.ts';
import { boundFile, readTail } from '../log-file.ts';
import type { VmmProcess } from '../process.ts';
import { flushDirectoryOf, flushFile } from '../sparse-copy.ts';
import { connectUnixSocket } from '../unix-socket.ts';
import { DEVICE_STATE_URI, GUEST_SOCKET, LOG_FILE, MEMORY_FILE, QMP_SOCKET, RUN_DIRECTORY } from './command-line.ts';
import { type Qmp, withQmp } from './qmp.ts';

const COMMAND_DEADLINE_MS = 30_000;
const LOG_BOUND_BYTES = 1_048_576;
const LOG_LOOK_MS = 5_000;
const SOCKET_POLL_MS = 2;
const STATUS_POLL_MS = 1;
/** A guest that was captured in mid-conversation must see that the host has gone before the next connection comes. */
const ABSENCE_MS = 25;
const SAVED_DEVICES = 'devices';
/** Two sockets, and device state that was saved. More is none of QEMU's doing. */
const MAX_RUN_ENTRIES = 16;
/** A few hundred KB. */
const MAX_DEVICES_BYTES = 67_108_864;

export interface QemuVmmOptions {
  directory: string;
  process: VmmProcess;
  /** Of the user that it runs as alone; undefined where it is not confined. */
  uid?: number | undefined;
  /** Further files that QEMU appends to what the guest says. */
  consolePath?: string | undefined;
  /** Called once its process is gone, and waited for before anybody hears of it. */
  onEnd?: () => Promise<{ outOfMemory: boolean }>;
}

export class QemuVmm implements Vmm {
  readonly exited: Promise<VmmExit>;
  readonly #directory: string;
  /** Below the directory, where QEMU's own files are: '' for a VM that was started before there was a place of their own. */
  readonly #run: string;
  readonly #process: VmmProcess;
  readonly #uid: number | undefined;
  #channel: Duplex | undefined;
  #hasExited = false;
  /** Commands go one after the other: QEMU serves one control connection at a time. */
  #lastCommand: Promise<unknown> = Promise.resolve();

  constructor(options: QemuVmmOptions) {
    this.#directory = options.directory;
    this.#run = existsSync(join(options.directory, RUN_DIRECTORY)) ? RUN_DIRECTORY : '';
    this.#process = options.process;
    this.#uid = options.uid;
    const bounded = [join(options.directory, LOG_FILE)];
    if (options.consolePath !== undefined) bounded.push(options.consolePath);
    const look = () => {
      for (const path of bounded) boundFile(path, LOG_BOUND_BYTES).catch(() => {});
      this.#endUnlessTidy().catch(() => {}); // it has just ended
    };
    const looking = setInterval(look, LOG_LOOK_MS).unref();
    const noMoreLoss = onDiskLoss(options.directory, look);
    this.exited = options.process.exited.then(async (end) => {
      clearInterval(looking);
      noMoreLoss();
      this.#hasExited = true;
      this.#channel?.destroy();
      const outOfMemory = (await options.onEnd?.())?.outOfMemory === true;
      return { ...end, logTail: await this.#logTail().catch(() => ''), outOfMemory };
    });
  }

  get pid(): number {
    return this.#process.pid;
  }

  async pause(signal?: AbortSignal): Promise<void> {
    await this.#command(async (qmp) => {
      await qmp.execute('stop');
      await expectStatus(qmp, 'paused');
    }, signal);
  }

  async resume(signal?: AbortSignal): Promise<void> {
    await this.#command(async (qmp) => {
      await qmp.execute('cont');
      await expectStatus(qmp, 'running');
    }, signal);
  }

  async capture({ memoryPath, devicePath, layerPath }: CaptureFiles, signal?: AbortSignal): Promise<void> {
    await this.#saveDevices(devicePath, signal);
    await linkFile(this.#memoryPath, memoryPath);
    await captureMemory({ pid: this.pid, memoryPath, layerPath }, signal);
  }

  async snapshot(files: SnapshotFiles, signal?: AbortSignal): Promise<void> {
    if (!(await this.#memoryIs(files.memoryPath)))
      throw new AppError('conflict', `the VM does not run on ${files.memoryPath}`);
    await this.#saveDevices(files.devicePath, signal);
    for (const path of [files.devicePath, files.memoryPath]) {
      await flushFile(path);
      await flushDirectoryOf(path);
    }
  }

  async openGuestChannel(signal?: AbortSignal): Promise<Duplex> {
    this.#channel?.destroy();
    try {
      const socket = await connectUnixSocket(this.#runDirectory, GUEST_SOCKET);
      this.#channel = socket;
      if (this.#hasExited) socket.destroy();
      return socket;
    } catch (cause) {
      signal?.throwIfAborted();
      throw this.#failure('connect to the guest port', cause);
    }
  }

  async destroy(): Promise<void> {
    this.#channel?.destroy();
    await this.#process.kill();
    await this.exited;
  }

  /**
   * Waits until QEMU, just spawned, has loaded what it was started with and the guest runs. A restored one gets the layers over its
   * memory before its devices are loaded: they look into it.
   */
  async running(
    deadlineMs: number,
    restoring?: { layerPaths: readonly string[] },
    signal?: AbortSignal,
  ): Promise<void> {
    await withDeadline(
      deadlineMs,
      'start of QEMU',
      async (inner) => {
        await this.#socketExists(inner);
        await this.#command(
          async (qmp) => {
            if (restoring !== undefined) {
              await applyLayers({ pid: this.pid, memoryPath: this.#memoryPath, ...restoring }, inner);
              await qmp.execute('migrate-incoming', { uri: DEVICE_STATE_URI });
            }
            let status = await qmp.status();
            for (; status === 'inmigrate' || status === 'prelaunch'; status = await qmp.status())
              await sleep(STATUS_POLL_MS, inner);
            // Loaded and not started: QEMU could not take a disk, and says why in its log.
            if (status !== 'running')
              throw new AppError('unavailable', `QEMU is ${status}: ${(await this.#logTail()).trim()}`);
            if (restoring !== undefined && restoring.layerPaths.length > 0) await sleep(ABSENCE_MS, inner);
          },
          inner,
          deadlineMs,
        );
      },
      signal,
    );
  }

  /** Somebody else than QEMU is filling the host's disk. */
  async #endUnlessTidy(): Promise<void> {
    const limits = { entries: MAX_RUN_ENTRIES, bytes: 2 * MAX_DEVICES_BYTES };
    const owner = this.#uid === undefined ? undefined : { pid: this.pid, uid: this.#uid };
    if (this.#run === '' || (await isWithin({ path: this.#runDirectory, owner }, limits))) return;
    await appendFile(join(this.#directory, LOG_FILE), 'ended by the host: it filled its run directory\n');
    await this.destroy();
  }

  get #memoryPath(): string {
    return join(this.#directory, MEMORY_FILE);
  }

  get #runDirectory(): string {
    return join(this.#directory, this.#run);
  }

  /**
   * QEMU writes where it may, and what it wrote is copied from there. The file stays, for the next time: what is removed and still open takes room that nobody sees.
   */
  async #saveDevices(devicePath: string, signal?: AbortSignal): Promise<void> {
    await this.#command(async (qmp) => {
      await expectStatus(qmp, 'paused');
      await qmp.execute('xen-save-devices-state', { filename: join(this.#run, SAVED_DEVICES) });
    }, signal);
    await copyHostileFile(join(this.#runDirectory, SAVED_DEVICES), devicePath, MAX_DEVICES_BYTES);
  }

  #logTail(): Promise<string> {
    return readTail(join(this.#directory, LOG_FILE));
  }

  /** The name appears at bind, connecting works from listen on, moments later. */
  async #socketExists(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      try {
        (await connectUnixSocket(this.#runDirectory, GUEST_SOCKET)).destroy();
        return;
      } catch (error) {
        const code = (error as NodeJS.ErrnoException).code;
        if (code !== 'ENOENT' && code !== 'ECONNREFUSED') throw error;
      }
      await sleep(SOCKET_POLL_MS, signal);
    }
  }

  /** A VM booted on a shared file has its memory there; `memory` in its directory is then that file. */
  async #memoryIs(path: string): Promise<boolean> {
    const own = await stat(this.#memoryPath, { bigint: true });
    const other = await stat(path, { bigint: true }).catch(() => undefined);
    return other !== undefined && own.ino === other.ino && own.dev === other.dev;
  }

  #command<T>(talk: (qmp: Qmp) => Promise<T>, signal?: AbortSignal, deadlineMs = COMMAND_DEADLINE_MS): Promise<T> {
    const command = this.#lastCommand.then(async () => {
      try {
        return await withQmp({ directory: this.#runDirectory, socketName: QMP_SOCKET, deadlineMs, signal }, talk);
      } catch (cause) {
        signal?.throwIfAborted();
        throw this.#failure('control QEMU', cause);
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

async function expectStatus(qmp: Qmp, wanted: string): Promise<void> {
  const status = await qmp.status();
  if (status !== wanted) throw new AppError('conflict', `the VM is ${status}, not ${wanted}`);
}
