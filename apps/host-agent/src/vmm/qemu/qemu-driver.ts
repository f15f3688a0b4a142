/** The QEMU driver: KVM where a probe boot works, software emulation (TCG) elsewhere. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '@fuse/contract';
import { type Logger, sleep } from '@fuse/runtime';
import type { BootSpec, MachineSpec, RestoreSpec, Vmm, VmmDriver } from '../driver.ts';
import { linkFile } from '../link-file.ts';
import { VmmProcess } from '../process.ts';
import {
  type Accelerator,
  bootArguments,
  LOG_FILE,
  MEMORY_FILE,
  machineFingerprint,
  QEMU_PROGRAM,
  type QemuMachine,
  restoreArguments,
} from './command-line.ts';
import { kvmBoots } from './kvm-probe.ts';
import { QemuVmm } from './qemu-vmm.ts';

const START_DEADLINE_MS = 30_000;
const EXIT_NOTICE_MS = 500;

export interface QemuDriverOptions {
  /** Where the verdict on KVM is kept. */
  dataDirectory: string;
  /** What the probe boots. */
  kernelPath: string;
  log: Logger;
}

export async function openQemuDriver(options: QemuDriverOptions): Promise<VmmDriver> {
  const version = await qemuVersion();
  const accelerator = (await kvmBoots({ ...options, qemuVersion: version })) ? 'kvm' : 'tcg';
  return new QemuDriver(accelerator, version);
}

class QemuDriver implements VmmDriver {
  readonly name = 'qemu';
  readonly accelerator: Accelerator;
  readonly #version: string;
  #fingerprint: string | undefined;

  constructor(accelerator: Accelerator, version: string) {
    this.accelerator = accelerator;
    this.#version = version;
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

  async boot(spec: BootSpec, signal?: AbortSignal): Promise<Vmm> {
    const memoryPath = join(spec.directory, MEMORY_FILE);
    const memoryFile = spec.sharedMemoryPath ?? memoryPath;
    await writeFile(memoryFile, '', { flag: 'wx', mode: 0o600 });
    await truncate(memoryFile, spec.shape.memoryMiB * 1_048_576);
    if (memoryFile !== memoryPath) await linkFile(memoryFile, memoryPath);
    const machine = this.#machine(spec, { sharedMemory: spec.sharedMemoryPath !== undefined });
    if (spec.consolePath !== undefined) await writeFile(spec.consolePath, '', { flag: 'a' });
    return this.#start({ ...spec, args: bootArguments({ ...machine, consolePath: spec.consolePath }, spec) }, signal);
  }

  async restore(spec: RestoreSpec, signal?: AbortSignal): Promise<Vmm> {
    // A name of our own keeps the bytes for as long as the VM lives, even when the snapshot is deleted.
    await linkFile(spec.snapshot.memoryPath, join(spec.directory, MEMORY_FILE));
    return this.#start(
      {
        directory: spec.directory,
        args: restoreArguments(this.#machine(spec, { sharedMemory: false })),
        restoring: { devicePath: spec.snapshot.devicePath, layerPaths: spec.snapshot.layerPaths ?? [] },
      },
      signal,
    );
  }

  async adopt(directory: string): Promise<Vmm | undefined> {
    const process = await VmmProcess.adopt(directory, basename(QEMU_PROGRAM));
    return process === undefined ? undefined : new QemuVmm({ directory, process });
  }

  #machine(spec: MachineSpec, options: { sharedMemory: boolean }): QemuMachine {
    return { accelerator: this.accelerator, memoryPath: MEMORY_FILE, ...spec, ...options };
  }

  async #start(
    options: {
      directory: string;
      args: string[];
      restoring?: { devicePath: string; layerPaths: readonly string[] };
      consolePath?: string;
    },
    signal?: AbortSignal,
  ): Promise<Vmm> {
    signal?.throwIfAborted();
    const log = { path: join(options.directory, LOG_FILE), flags: 'a' } as const;
    const process = await VmmProcess.spawn({
      program: QEMU_PROGRAM,
      args: options.args,
      directory: options.directory,
      stdio: [
        'ignore',
        log,
        log,
        ...(options.restoring === undefined ? [] : [{ path: options.restoring.devicePath, flags: 'r' } as const]),
      ],
    });
    const vmm = new QemuVmm({ ...options, process });
    try {
      await runningOrEnded(vmm, options.restoring, signal);
      return vmm;
    } catch (error) {
      await vmm.destroy();
      throw error;
    }
  }
}

async function runningOrEnded(
  vmm: QemuVmm,
  restoring: { layerPaths: readonly string[] } | undefined,
  signal?: AbortSignal,
): Promise<void> {
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
    await Promise.race([vmm.running(START_DEADLINE_MS, restoring, stop.signal), ended]);
  } catch (error) {
    // A QEMU that is about to end closes its sockets first, and its log knows why.
    await Promise.race([ended, sleep(EXIT_NOTICE_MS)]);
    throw error;
  } finally {
    signal?.removeEventListener('abort', onOuter);
  }
}

async function hostCpu(): Promise<string> {
  const lines = (await readFile('/proc/cpuinfo', 'utf8')).split('\n');
  return lines
    .filter((line) => /^(vendor_id|model name|flags)\s*:/.test(line))
    .slice(0, 3)
    .join('\n');
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
