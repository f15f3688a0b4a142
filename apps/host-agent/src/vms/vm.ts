/** One VM of this host and its directory: what can be asked of it (its states are in vm-core.ts). */
import { rm } from 'node:fs/promises';
import { AppError, type Healthcheck, type ListProcesses, NO_NETWORK } from '@fuse/contract';
import type {
  CreateVm,
  HostVm,
  RestoreVm,
  StartExec,
  TakeSnapshot,
  VmNetwork,
  VmNetworkReport,
  VmNetworkTotals,
} from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { archiveExecs } from '../execs/archive-execs.ts';
import type { Exec } from '../execs/exec.ts';
import type { Guest } from '../guest/guest.ts';
import { noNetworkCardError, VmNetworkState, wantsNetwork } from '../network/vm-network.ts';
import type { StoredSnapshot } from '../snapshots/stored-snapshot.ts';
import { adoptVm } from './adopt-vm.ts';
import { requireNoGpus } from './held-gpus.ts';
import { endLeftVmms, FIRST_MACHINE } from './machine.ts';
import { digestInBackground, pauseVm } from './pause-vm.ts';
import { restoreVm } from './restore-vm.ts';
import { resumeVm } from './resume-vm.ts';
import { notNowError, startVm } from './start-vm.ts';
import { takeSnapshot } from './take-snapshot.ts';
import { VmCore } from './vm-core.ts';
import type { VmHost } from './vm-host.ts';
import type { VmRecord } from './vm-record.ts';

/** A cut channel is often the first sign of a VMM's end: how long to wait for the second. */
const EXIT_NEWS_MS = 500;

export interface DestroyedVm {
  /** Its execs are in the object that was named. */
  archived: boolean;
  /** Of one with a network card. */
  network?: VmNetworkTotals;
}

export class Vm {
  readonly #core: VmCore;
  #archived = false;
  #ready: Promise<void> = Promise.resolve();
  #adopting = false;
  #destroying: Promise<DestroyedVm> | undefined;
  /** Those who ask for the same at the same time share one try. */
  readonly #underWay = new Map<string, Promise<void>>();
  #digesting: { stop: AbortController; done: Promise<void> } | undefined;

  private constructor(host: VmHost, record: VmRecord) {
    this.#core = new VmCore(host, record);
  }

  /** A new VM, at once in state `starting`. */
  static start(host: VmHost, id: string, order: CreateVm): Vm {
    const created_at = new Date().toISOString();
    const vm = new Vm(host, { id, state: 'starting', order, created_at, machine: FIRST_MACHINE, generation: 0 });
    vm.#ready = startVm(vm.#core);
    vm.#ready.catch(() => {});
    return vm;
  }

  /** One that an earlier host agent left. What was not handed over yet is destroyed; the rest is found again in the background. */
  static load(host: VmHost, record: VmRecord): Vm {
    const vm = new Vm(host, record);
    if (record.state !== 'starting') {
      vm.#adopting = true;
      vm.#ready = adoptVm(vm.#core).finally(() => {
        vm.#adopting = false;
      });
      vm.#ready.then(
        () => vm.#digestPaused(),
        () => {},
      );
    }
    return vm;
  }

  get state(): HostVm['state'] {
    return this.#core.state;
  }

  get id(): string {
    return this.#core.record.id;
  }

  get tag(): string {
    return this.#core.record.order.tag;
  }

  /** What it has of the host's GPUs, by their names; none once its VMM is gone. */
  get gpus(): readonly string[] {
    return this.state === 'dead' ? [] : (this.#core.record.order.gpus?.devices ?? []);
  }

  get machineDirectory(): string {
    return this.#core.machineDirectory;
  }

  /** Resolves once it is running (or known to be paused or dead); rejects with why a start failed. */
  get ready(): Promise<void> {
    return this.#ready;
  }

  view(): HostVm {
    const { id, order, created_at, error, timings, restore_id, disk_only } = this.#core.record;
    const { health } = this.#core.health;
    const { network } = this.#core;
    return {
      id,
      state: this.state,
      tag: order.tag,
      image: order.image,
      shape: order.shape,
      created_at,
      ...(error === undefined || this.state !== 'dead' ? {} : { error }),
      ...(timings === undefined ? {} : { timings }),
      ...(restore_id === undefined ? {} : { restore_id }),
      ...(disk_only === true ? { disk_only } : {}),
      ...(health === undefined || this.state === 'dead' ? {} : { health }),
      ...(network === undefined ? {} : { network: network.view() }),
    };
  }

  /** Started once, however often it is asked for. */
  async startExec(id: string, request: StartExec): Promise<{ exec: Exec; created: boolean }> {
    if (this.#adopting) await this.#ready;
    return this.#core.execs.start(id, request);
  }

  async execs(): Promise<Exec[]> {
    if (this.#adopting) await this.#ready;
    return this.#core.execs.list();
  }

  /** A process of an exec that came with a snapshot, from another VM, is of none here. */
  async processes(signal: AbortSignal): Promise<ListProcesses> {
    const { processes, truncated } = await this.withGuest((guest) => guest.processes(signal));
    const ids = new Map(this.#core.execs.list().map((exec) => [exec.guestId, exec.id]));
    const named = processes.map(({ exec_id, ...process }) => {
      const id = exec_id === undefined ? undefined : ids.get(exec_id);
      return id === undefined ? process : { ...process, exec_id: id };
    });
    return { processes: named, truncated };
  }

  async exec(id: string): Promise<Exec> {
    if (this.#adopting) await this.#ready;
    return this.#core.execs.get(id);
  }

  /** Ends its whole process tree. */
  async killExec(id: string): Promise<void> {
    const exec = await this.exec(id);
    if (this.state !== 'dead') await this.withGuest(() => exec.kill());
  }

  /** What fails because the VM died says so (`vm_lost`), whatever broke first; because it was paused, `conflict`. */
  async withGuest<T>(work: (guest: Guest) => Promise<T>): Promise<T> {
    if (this.#adopting) await this.#ready;
    const machine = this.#core.runningMachine();
    try {
      return await work(machine.guest);
    } catch (error) {
      const refused = error instanceof AppError && error.code !== 'vm_lost' && error.code !== 'unavailable';
      if (!refused) await Promise.race([machine.vmm.exited, sleep(EXIT_NEWS_MS)]);
      if (this.state === 'running') throw error;
      if (this.state !== 'destroying') this.#core.runningMachine();
      throw this.#core.lost(error);
    }
  }

  putHealthcheck(healthcheck: Healthcheck): Promise<void> {
    return this.withGuest((guest) => this.#core.health.put(guest, healthcheck));
  }

  /** Holds from when this resolves, also over a pause. */
  async setNetwork(network: VmNetwork): Promise<void> {
    await this.#settled();
    const { network: card, host, record } = this.#core;
    if (card === undefined && wantsNetwork(network)) throw noNetworkCardError('the VM was started without one');
    await this.#core.save((last) => ({ ...last, order: { ...last.order, network } }));
    if (card === undefined) return;
    card.policies = network.policies;
    await host.network.setPolicies(record.id);
  }

  async networkReport(): Promise<VmNetworkReport> {
    if (this.#adopting) await this.#ready;
    const { network, host, record } = this.#core;
    const state = network ?? new VmNetworkState(record.order.network?.policies ?? [NO_NETWORK]);
    return host.network.report(record.id, state);
  }

  /** It goes on at once; the snapshot is usable when this resolves. */
  async takeSnapshot(id: string, order: TakeSnapshot): Promise<{ snapshot: StoredSnapshot; created: boolean }> {
    await this.#settled();
    requireNoGpus(this.#core.record);
    return takeSnapshot(this.#core, id, order);
  }

  async pause(): Promise<void> {
    requireNoGpus(this.#core.record);
    await this.#operate('pause', 'paused', () => pauseVm(this.#core));
    this.#digestPaused();
  }

  async resume(): Promise<void> {
    await this.#stopDigesting();
    await this.#operate('resume', 'resumed', () => resumeVm(this.#core)).finally(() => this.#digestPaused());
  }

  async restore(request: RestoreVm): Promise<void> {
    requireNoGpus(this.#core.record);
    await this.#stopDigesting();
    await this.#operate(`restore ${request.restore_id}`, 'restored', () => restoreVm(this.#core, request));
  }

  /**
   * Legal in every state; concurrent calls share one end, and one that failed can be repeated. With a key, its execs become that object before
   * they are gone.
   */
  destroy(archiveKey?: string): Promise<DestroyedVm> {
    this.#destroying ??= this.#tearDown(archiveKey).catch((error: unknown) => {
      this.#destroying = undefined;
      throw error;
    });
    return this.#destroying;
  }

  /** Lets go of it: a running VM runs on, one that is being started is not. */
  async detach(): Promise<void> {
    this.#core.stopping.abort(new AppError('unavailable', 'the host agent is stopping'));
    await this.#ready.catch(() => {});
    await this.#core.idle();
    await this.#stopDigesting();
    await this.#core.detach();
  }

  async #operate(key: string, done: string, work: () => Promise<void>): Promise<void> {
    await this.#settled();
    const operation = this.#underWay.get(key) ?? this.#core.inTurn(work).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, operation);
    await operation.catch((error: unknown) => {
      throw notNowError(done, error);
    });
  }

  /** One that is starting refuses. */
  async #settled(): Promise<void> {
    if (this.#adopting) await this.#ready;
    if (this.state === 'starting' || this.state === 'destroying') this.#core.runningMachine();
  }

  #digestPaused(): void {
    if (this.state !== 'paused' || this.#digesting !== undefined) return;
    const stop = new AbortController();
    this.#digesting = { stop, done: digestInBackground(this.#core, stop.signal) };
  }

  async #stopDigesting(): Promise<void> {
    this.#digesting?.stop.abort(new Error('the digests are not needed any more'));
    await this.#digesting?.done;
    this.#digesting = undefined;
  }

  async #tearDown(archiveKey: string | undefined): Promise<DestroyedVm> {
    const core = this.#core;
    core.become('destroying');
    const reason = new AppError('conflict', 'the VM was destroyed');
    core.stopping.abort(reason);
    core.ending.abort(reason);
    await this.#ready.catch(() => {});
    await core.idle();
    await this.#stopDigesting();
    await core.unbury();
    const machine = core.letGo();
    await machine?.vmm.destroy();
    await endLeftVmms(core.host.driver, core.directory);
    await core.execs.lose(new AppError('vm_lost', 'the VM was destroyed'));
    await machine?.guest[Symbol.asyncDispose]();
    await core.host.network.detach(core.record.id);
    const execs = core.execs.list();
    if (archiveKey !== undefined && execs.length > 0 && !this.#archived)
      this.#archived = await archiveExecs(core.host.store, archiveKey, execs, { log: core.log });
    await rm(core.directory, { recursive: true, force: true });
    const { network } = core;
    return { archived: this.#archived, ...(network === undefined ? {} : { network: network.totals }) };
  }
}
