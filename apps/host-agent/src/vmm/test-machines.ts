/**
 * Real machines for tests: a driver, what set-up built (from FUSE_HOME) and a template, which is kept there between test files, since
 * making one takes seconds. Disposing ends every machine and fails when anything of one is left.
 */

import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { FrameParser, frameType } from '@fuse/contract';
import { type ExecSpec, GuestExecExit, type GuestIdentity } from '@fuse/host-protocol';
import { createLogger, type Logger, newId } from '@fuse/runtime';
import { expectNoLeaks, type ResourceSnapshot, resourceSnapshot, temporaryDirectory } from '@fuse/testing';
import type { ExecConversation, Guest } from '../guest/guest.ts';
import { connectGuest } from '../guest/guest-client.ts';
import { type Assets, type ImageAsset, imageNamed, loadAssets } from '../images/assets.ts';
import { type Template, Templates } from '../templates/templates.ts';
import { endSpawner } from './children.ts';
import type { BootSpec, SnapshotFiles, Vmm, VmmDriver } from './driver.ts';
import { copyWritableDisk, createWritableDisk } from './machine-disk.ts';

const home = process.env.FUSE_HOME ?? join(homedir(), '.fuse');
/** Shared by all tests, so that KVM is probed once and templates are made once. */
export const testDataDirectory = join(home, 'testing');
export const testShape = { cpus: 1, ram_mb: 256, storage_gb: 1 };
export const testLog = createLogger({ name: 'test', level: process.env.FUSE_TEST_LOG_LEVEL ?? 'silent' });

export type OpenDriver = (options: { dataDirectory: string; kernelPath: string; log: Logger }) => Promise<VmmDriver>;

export interface TestMachine {
  directory: string;
  diskPath: string;
  vmm: Vmm;
  guest: Guest;
}

export class TestMachines implements AsyncDisposable {
  readonly driver: VmmDriver;
  readonly assets: Assets;
  readonly directory: string;
  readonly #removeDirectory: () => PromiseLike<void>;
  readonly #before: ResourceSnapshot;
  readonly #machines = new Set<TestMachine>();
  #template: Template | undefined;

  private constructor(
    driver: VmmDriver,
    assets: Assets,
    directory: string,
    removeDirectory: () => PromiseLike<void>,
    before: ResourceSnapshot,
  ) {
    this.driver = driver;
    this.assets = assets;
    this.directory = directory;
    this.#removeDirectory = removeDirectory;
    this.#before = before;
  }

  static async open(openDriver: OpenDriver): Promise<TestMachines> {
    const assets = await loadAssets(join(home, 'assets', 'manifest.json'));
    await mkdir(testDataDirectory, { recursive: true });
    const driver = await openDriver({ dataDirectory: testDataDirectory, kernelPath: assets.kernel.path, log: testLog });
    const { path, [Symbol.asyncDispose]: remove } = await temporaryDirectory('fuse-machines-');
    return new TestMachines(driver, assets, path, remove, await resourceSnapshot({ directories: [path] }));
  }

  get image(): ImageAsset {
    return imageNamed(this.assets, 'base');
  }

  async template(): Promise<Template> {
    if (this.#template === undefined) {
      const { driver, assets } = this;
      const directory = join(testDataDirectory, 'templates');
      await using templates = new Templates({ directory, driver, assets, log: testLog });
      await templates.sweep();
      this.#template = await templates.ensure(this.image, testShape);
    }
    return this.#template;
  }

  async newDirectory(name = newId('vm')): Promise<string> {
    const directory = join(this.directory, name);
    await mkdir(directory, { recursive: true });
    return directory;
  }

  /** The parts of a spec that all machines here share; the disk is an empty one. */
  async bootSpec(directory: string): Promise<BootSpec> {
    const writableDiskPath = join(directory, 'writable.img');
    await createWritableDisk(writableDiskPath, testShape.storage_gb);
    return { ...this.#spec(directory), writableDiskPath };
  }

  async boot(change: Partial<BootSpec> = {}): Promise<TestMachine> {
    const directory = change.directory ?? (await this.newDirectory());
    const spec = { ...(await this.bootSpec(directory)), ...change };
    return this.#keep({ directory, diskPath: spec.writableDiskPath, vmm: await this.driver.boot(spec) });
  }

  /** From the test template unless another snapshot, with its disk, is given. */
  async restore(from?: { snapshot: SnapshotFiles; diskPath: string }, directory?: string): Promise<TestMachine> {
    const { snapshot, diskPath } = from ?? (await this.template());
    const own = directory ?? (await this.newDirectory());
    const writableDiskPath = join(own, 'writable.img');
    await copyWritableDisk(diskPath, writableDiskPath);
    const vmm = await this.driver.restore({ ...this.#spec(own), writableDiskPath, snapshot });
    return this.#keep({ directory: own, diskPath: writableDiskPath, vmm });
  }

  /** Of a paused machine: memory, devices and disk in a directory of their own. */
  async capture(machine: TestMachine): Promise<{ snapshot: SnapshotFiles; diskPath: string }> {
    const directory = await this.newDirectory(newId('snapshot'));
    const files = { memoryPath: join(directory, 'memory'), devicePath: join(directory, 'device') };
    const layerPath = join(directory, 'layer');
    await machine.vmm.capture({ ...files, layerPath });
    const snapshot = { ...files, layerPaths: [layerPath] };
    const diskPath = join(directory, 'disk.img');
    await copyWritableDisk(machine.diskPath, diskPath);
    return { snapshot, diskPath };
  }

  async end(machine: TestMachine): Promise<void> {
    this.#machines.delete(machine);
    await machine.guest[Symbol.asyncDispose]();
    await machine.vmm.destroy();
  }

  async endAll(): Promise<void> {
    await Promise.all([...this.#machines].map((machine) => this.end(machine)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endAll();
    await this.#removeDirectory();
    await endSpawner();
    await expectNoLeaks(this.#before);
  }

  #spec(directory: string): Omit<BootSpec, 'writableDiskPath'> {
    return {
      directory,
      shape: { cpus: testShape.cpus, memoryMiB: testShape.ram_mb },
      imagePath: this.image.path,
      kernelPath: this.assets.kernel.path,
      initramfsPath: this.assets.initramfs.path,
    };
  }

  #keep(machine: Omit<TestMachine, 'guest'>): TestMachine {
    const kept = { ...machine, guest: connectGuest(machine.vmm, { log: testLog }) };
    this.#machines.add(kept);
    return kept;
  }
}

export interface CommandResult {
  stdout: Buffer;
  stderr: Buffer;
  exit: GuestExecExit;
}

export async function collect(conversation: ExecConversation): Promise<CommandResult> {
  const parser = new FrameParser();
  const streams: Record<number, Buffer[]> = { [frameType.stdout]: [], [frameType.stderr]: [] };
  let exit: GuestExecExit | undefined;
  let received = 0;
  for await (const chunk of conversation.frames) {
    for (const { type, payload } of parser.push(chunk)) {
      if (type === frameType.exit) exit = GuestExecExit.parse(JSON.parse(Buffer.from(payload).toString()));
      else streams[type]?.push(Buffer.from(payload));
    }
    received += chunk.length;
    conversation.ack(received);
  }
  if (exit === undefined) throw new Error('the exec ended without an exit frame');
  const of = (type: number) => Buffer.concat(streams[type] ?? []);
  return { stdout: of(frameType.stdout), stderr: of(frameType.stderr), exit };
}

export async function runIn(guest: Guest, argv: string[], more: Partial<ExecSpec> = {}): Promise<CommandResult> {
  return collect(await guest.exec(newId('x'), { spec: { argv, stdin: false, cwd: '/', ...more } }));
}

/** Fails unless the command ends with 0. */
export async function shellIn(guest: Guest, script: string): Promise<string> {
  const { stdout, stderr, exit } = await runIn(guest, ['sh', '-c', script]);
  if (exit.exit_code !== 0) throw new Error(`exit ${exit.exit_code}: ${stderr}`);
  return stdout.toString();
}

export function newIdentity(hostname = 'test-vm'): GuestIdentity {
  return {
    time_unix_ns: String(BigInt(Date.now()) * 1_000_000n),
    entropy_base64: randomBytes(64).toString('base64'),
    hostname,
    machine_id: randomBytes(16).toString('hex'),
    generation: Date.now(),
  };
}
