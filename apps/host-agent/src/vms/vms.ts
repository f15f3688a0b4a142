/** The VMs of this host, by id. Listing never waits for any of them. */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { type CreateVm, type HostVm, type RestoreVm, type TakeSnapshot, VmId } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import type { StoredSnapshot } from '../snapshots/stored-snapshot.ts';
import { requireFreeGpus } from './held-gpus.ts';
import { endLeftVmms } from './machine.ts';
import { type DestroyedVm, Vm } from './vm.ts';
import type { VmHost } from './vm-host.ts';
import { loadVmRecord } from './vm-record.ts';

/** Start-up waits this long for the VMs that are there; those that take longer are found in the background. */
const ADOPTION_PATIENCE_MS = 2_000;

export class Vms implements AsyncDisposable {
  readonly #host: VmHost;
  readonly #vms = new Map<string, Vm>();
  /** Directories that belong to no listed VM and are being removed. */
  readonly #sweeping = new Map<string, Promise<boolean>>();
  /** Paused or dead ones that are asked to run again, and by how many. */
  readonly #waking = new Map<Vm, number>();
  #closing = false;

  private constructor(host: VmHost) {
    this.#host = host;
  }

  /** Takes up the VMs that an earlier host agent left. */
  static async open(host: VmHost): Promise<Vms> {
    const vms = new Vms(host);
    await mkdir(host.vmsDirectory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(host.vmsDirectory)) await vms.#load(name);
    vms.#inBackground('network', host.network.takeUp());
    const found = Promise.allSettled([...vms.#vms.values()].map((vm) => vm.ready));
    const patience = new AbortController();
    await Promise.race([found, sleep(ADOPTION_PATIENCE_MS, patience.signal).catch(() => {})]);
    patience.abort();
    return vms;
  }

  /** Of each VM's machine, or of what is left of it. */
  machineDirectories(): string[] {
    return [...this.#vms.values()].map((vm) => vm.machineDirectory);
  }

  list(): HostVm[] {
    return [...this.#vms.values()].map((vm) => vm.view());
  }

  get(id: string): Vm {
    const vm = this.#vms.get(id);
    if (vm === undefined) throw new AppError('not_found', `there is no VM "${id}"`);
    return vm;
  }

  /** Concurrent calls for one id share one start, and its failure. */
  async put(id: string, order: CreateVm): Promise<{ vm: HostVm; created: boolean }> {
    const existing = this.#vms.get(id);
    const vm = existing ?? this.#start(id, order);
    if (vm.tag !== order.tag) throw new AppError('conflict', `VM "${id}" belongs to another cluster`);
    if (vm.state === 'destroying') throw new AppError('conflict', `VM "${id}" is being destroyed`);
    try {
      await vm.ready;
    } catch (error) {
      this.#forgetUnstarted(id, vm);
      throw error;
    }
    return { vm: vm.view(), created: existing === undefined };
  }

  /** Found again whatever has become of the VM since. */
  async takeSnapshot(
    vm_id: string,
    id: string,
    order: TakeSnapshot,
  ): Promise<{ snapshot: StoredSnapshot; created: boolean }> {
    const snapshot = this.#host.snapshots.find({ id, vm_id, tag: order.tag });
    if (snapshot === undefined) return this.get(vm_id).takeSnapshot(id, order);
    await snapshot.made;
    return { snapshot, created: false };
  }

  /** A paused VM takes no room among those that run; one that is resumed does again. */
  async resume(id: string): Promise<HostVm> {
    const vm = this.get(id);
    return this.#withRoom(vm, () => vm.resume());
  }

  async restore(id: string, request: RestoreVm): Promise<HostVm> {
    const vm = this.get(id);
    return this.#withRoom(vm, () => vm.restore(request));
  }

  /** `destroyed`: false when there was nothing; `archived`: the execs are in the object `archiveKey`, also from an earlier try. */
  async destroy(id: string, archiveKey?: string): Promise<DestroyedVm & { destroyed: boolean }> {
    const vm = this.#vms.get(id);
    if (vm === undefined) {
      const destroyed = await this.#sweep(id);
      return { destroyed, archived: archiveKey !== undefined && (await this.#isStored(archiveKey)) };
    }
    const destroyed = await vm.destroy(archiveKey);
    this.#forget(id, vm);
    return { destroyed: true, ...destroyed };
  }

  /** Those whose record cannot be read, too. */
  async destroyAll(): Promise<void> {
    const names = await readdir(this.#host.vmsDirectory);
    const ids = new Set([...this.#vms.keys(), ...names.filter((name) => VmId.safeParse(name).success)]);
    const results = await Promise.allSettled([...ids].map((id) => this.destroy(id)));
    const failures = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
    if (failures.length > 0) throw new AggregateError(failures, `${failures.length} VMs could not be destroyed`);
  }

  /** The VMs live on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing = true;
    await Promise.all([...this.#vms.values()].map((vm) => vm.detach()));
    await Promise.allSettled(this.#sweeping.values());
  }

  async #isStored(key: string): Promise<boolean> {
    return this.#host.store.head(key).then(
      () => true,
      () => false,
    );
  }

  #start(id: string, order: CreateVm): Vm {
    if (this.#closing) throw new AppError('unavailable', 'the host agent is stopping');
    if (this.#sweeping.has(id)) throw new AppError('conflict', `VM "${id}" is being destroyed`);
    this.#requireRoom();
    requireFreeGpus(order, this.#vms.values());
    const vm = Vm.start(this.#host, id, order);
    this.#vms.set(id, vm);
    return vm;
  }

  /** Its place is taken before the work begins. */
  async #withRoom(vm: Vm, work: () => Promise<void>): Promise<HostVm> {
    if (!this.#takesRoom(vm)) this.#requireRoom();
    this.#waking.set(vm, (this.#waking.get(vm) ?? 0) + 1);
    try {
      await work();
    } finally {
      const left = (this.#waking.get(vm) ?? 1) - 1;
      if (left === 0) this.#waking.delete(vm);
      else this.#waking.set(vm, left);
    }
    return vm.view();
  }

  #takesRoom(vm: Vm): boolean {
    return this.#waking.has(vm) || (vm.state !== 'dead' && vm.state !== 'paused');
  }

  #requireRoom(): void {
    const alive = [...this.#vms.values()].filter((vm) => this.#takesRoom(vm)).length;
    if (alive >= this.#host.maxVms)
      throw new AppError('unavailable', `this host has all the VMs that it may have (${this.#host.maxVms})`, {
        retryAfterSeconds: 5,
      });
  }

  /** One that is being destroyed stays listed until that is done. */
  #forgetUnstarted(id: string, vm: Vm): void {
    if (vm.state !== 'destroying') this.#forget(id, vm);
  }

  #forget(id: string, vm: Vm): void {
    if (this.#vms.get(id) === vm) this.#vms.delete(id);
  }

  async #load(name: string): Promise<void> {
    const { log, vmsDirectory } = this.#host;
    if (!VmId.safeParse(name).success) return;
    try {
      const record = await loadVmRecord(join(vmsDirectory, name));
      if (record === undefined) return this.#inBackground(name, this.#sweep(name));
      this.#vms.set(name, Vm.load(this.#host, record));
      if (record.state === 'starting') this.#inBackground(name, this.destroy(name));
    } catch (error) {
      log.error({ err: error, vm_id: name }, 'VM record unreadable: left alone until it is destroyed by its id');
    }
  }

  #inBackground(id: string, work: Promise<unknown>): void {
    work.catch((error: unknown) => this.#host.log.error({ err: error, vm_id: id }, 'half-made VM not removed'));
  }

  /** Removes a directory that belongs to no listed VM, and the VMM in it. */
  #sweep(id: string): Promise<boolean> {
    const under = this.#sweeping.get(id);
    if (under !== undefined) return under;
    const sweep = this.#remove(join(this.#host.vmsDirectory, id)).finally(() => this.#sweeping.delete(id));
    this.#sweeping.set(id, sweep);
    return sweep;
  }

  async #remove(directory: string): Promise<boolean> {
    const there = await stat(directory).catch(() => undefined);
    if (there === undefined) return false;
    await endLeftVmms(this.#host.driver, directory);
    await rm(directory, { recursive: true, force: true });
    return true;
  }
}
