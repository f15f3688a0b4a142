/**
 * One VM of this host and its directory.
 *
 *   starting -> running -> dead          its VMM ended, or its guest stopped answering: `error` says why
 *            -> (gone)                   the start failed: nothing is left
 *   any      -> destroying -> (gone)
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { CreateVm, HostVm, StartExec } from '@fuse/host-protocol';
import { sleep, withDeadline } from '@fuse/runtime';
import type { Exec } from '../execs/exec.ts';
import { Execs } from '../execs/execs.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vmm } from '../vmm/driver.ts';
import { diskFullError, isDiskFull } from './disk-full.ts';
import { watchGuest } from './guest-watch.ts';
import { startMachine } from './start-machine.ts';
import type { VmHost } from './vm-host.ts';
import { saveVmRecord, type VmRecord } from './vm-record.ts';

const START_DEADLINE_MS = 300_000;
const ADOPT_DEADLINE_MS = 10_000;
/** A cut channel is often the first sign of a VMM's end: how long to wait for the second. */
const EXIT_NEWS_MS = 500;

/** Nobody is told that a VM is gone while its VMM runs, unless that will not end. */
const END_PATIENCE_MS = 2_000;

interface Machine {
  vmm: Vmm;
  guest: Guest;
}

export class Vm {
  readonly directory: string;
  readonly #host: VmHost;
  readonly #execs: Execs;
  readonly #stopStart = new AbortController();
  #record: VmRecord;
  #state: HostVm['state'];
  #machine: Machine | undefined;
  #ready: Promise<void> = Promise.resolve();
  #adopting = false;
  #detached = false;
  #dying: Promise<void> | undefined;
  #destroying: Promise<void> | undefined;
  #unwatch: AbortController | undefined;

  private constructor(host: VmHost, record: VmRecord) {
    this.#host = host;
    this.#record = record;
    this.#state = record.state;
    this.directory = join(host.vmsDirectory, record.id);
    this.#execs = new Execs({
      directory: join(this.directory, 'execs'),
      vmEnv: record.order.env ?? {},
      host: {
        log: host.log.child({ vm_id: record.id }),
        store: host.store,
        guest: () => this.#guest(),
        condemn: (reason) => void this.#die(reason),
      },
      onRunning: (count) => this.#watch(count > 0),
    });
  }

  /** A new VM, at once in state `starting`. */
  static start(host: VmHost, id: string, order: CreateVm): Vm {
    const created_at = new Date().toISOString();
    const vm = new Vm(host, { id, state: 'starting', order, created_at, generation: 0 });
    vm.#ready = vm.#start();
    vm.#ready.catch(() => {});
    return vm;
  }

  /** One that an earlier host agent left. What was not handed over yet is destroyed; the rest is found again in the background. */
  static load(host: VmHost, record: VmRecord): Vm {
    const vm = new Vm(host, record);
    if (record.state !== 'starting') {
      vm.#adopting = true;
      vm.#ready = vm.#adopt().finally(() => {
        vm.#adopting = false;
      });
      vm.#ready.catch(() => {});
    }
    return vm;
  }

  get state(): HostVm['state'] {
    return this.#state;
  }

  get tag(): string {
    return this.#record.order.tag;
  }

  /** Resolves once it is running (or known to be dead); rejects with why a start failed. */
  get ready(): Promise<void> {
    return this.#ready;
  }

  view(): HostVm {
    const { id, order, created_at, error, timings } = this.#record;
    return {
      id,
      state: this.#state,
      tag: order.tag,
      image: order.image,
      shape: order.shape,
      created_at,
      ...(error === undefined ? {} : { error }),
      ...(timings === undefined ? {} : { timings }),
    };
  }

  /** Started once, however often it is asked for. */
  async startExec(id: string, request: StartExec): Promise<{ exec: Exec; created: boolean }> {
    if (this.#adopting) await this.#ready;
    return this.#execs.start(id, request);
  }

  async exec(id: string): Promise<Exec> {
    if (this.#adopting) await this.#ready;
    return this.#execs.get(id);
  }

  /** Ends its whole process tree. */
  async killExec(id: string): Promise<void> {
    const exec = await this.exec(id);
    if (this.#state !== 'dead') await this.withGuest(() => exec.kill());
  }

  /** What fails because the VM died says so (`vm_lost`), whatever broke first. */
  async withGuest<T>(work: (guest: Guest) => Promise<T>): Promise<T> {
    if (this.#adopting) await this.#ready;
    try {
      return await work(this.#guest());
    } catch (error) {
      const refused = error instanceof AppError && error.code !== 'vm_lost' && error.code !== 'unavailable';
      if (!refused) await this.#awaitExitNews();
      if (this.#state === 'running') throw error;
      throw this.#lost(error);
    }
  }

  /** Legal in every state; concurrent calls share one end, and one that failed can be repeated. */
  destroy(): Promise<void> {
    this.#destroying ??= this.#tearDown().catch((error: unknown) => {
      this.#destroying = undefined;
      throw error;
    });
    return this.#destroying;
  }

  /** Lets go of it: a running VM runs on, one that is being started is not. */
  async detach(): Promise<void> {
    this.#stopStart.abort(new AppError('unavailable', 'the host agent is stopping'));
    await this.#ready.catch(() => {});
    this.#detached = true;
    await this.#dying;
    this.#watch(false);
    await this.#execs.detach();
    await this.#machine?.guest[Symbol.asyncDispose]();
  }

  async #start(): Promise<void> {
    const deadline = setTimeout(
      () => this.#stopStart.abort(new AppError('unavailable', `the VM did not start within ${START_DEADLINE_MS} ms`)),
      START_DEADLINE_MS,
    );
    let machine: Machine | undefined;
    try {
      await mkdir(this.directory, { mode: 0o700 });
      await saveVmRecord(this.directory, this.#record);
      const started = await startMachine(this.#host, this.#record.order, this.directory, this.#stopStart.signal);
      const { generation, timings } = started;
      machine = started;
      const record: VmRecord = { ...this.#record, state: 'running', generation, timings };
      await saveVmRecord(this.directory, record);
      this.#record = record;
      if (this.#state === 'starting') this.#state = 'running';
      this.#hold(machine);
    } catch (error) {
      await machine?.guest[Symbol.asyncDispose]();
      await machine?.vmm.destroy();
      await rm(this.directory, { recursive: true, force: true });
      throw this.#stopStart.signal.aborted ? this.#stopStart.signal.reason : startError(error);
    } finally {
      clearTimeout(deadline);
    }
  }

  async #adopt(): Promise<void> {
    let vmm: Vmm | undefined;
    let problem = 'its VMM was gone when the host agent started';
    try {
      if (this.#record.state === 'running')
        vmm = await withDeadline(ADOPT_DEADLINE_MS, 'finding the VMM again', () =>
          this.#host.driver.adopt(this.directory),
        );
    } catch (error) {
      this.#host.log.error({ err: error, vm_id: this.#record.id }, 'VM not adopted');
      problem = 'its VMM could not be found again';
    }
    if (vmm !== undefined) this.#hold({ vmm, guest: this.#host.connectGuest(vmm) });
    await this.#execs.load();
    if (vmm === undefined) await this.#die(this.#record.error ?? problem);
  }

  #hold(machine: Machine): void {
    this.#machine = machine;
    void machine.vmm.exited.then(({ code, signal, logTail }) =>
      this.#die(`its VMM ended (${signal ?? `code ${code}`})${logTail === '' ? '' : `: ${logTail.trim()}`}`),
    );
  }

  #guest(): Guest {
    if (this.#state === 'running' && this.#machine !== undefined) return this.#machine.guest;
    if (this.#state === 'dead') throw this.#lost();
    throw new AppError('conflict', `the VM is ${this.#state}`);
  }

  #lost(cause?: unknown): AppError {
    return new AppError('vm_lost', `the VM is gone: ${this.#record.error ?? 'it was destroyed'}`, { cause });
  }

  /** Also ends a VMM that still runs: a VM that was given up must not go on unseen. */
  #die(reason: string): Promise<void> {
    if (this.#dying === undefined && !this.#detached && (this.#state === 'running' || this.#state === 'dead'))
      this.#dying = this.#bury(reason);
    return this.#dying ?? Promise.resolve();
  }

  async #bury(reason: string): Promise<void> {
    const log = this.#host.log.child({ vm_id: this.#record.id });
    this.#state = 'dead';
    if (this.#record.state !== 'dead') log.warn({ reason }, 'VM died');
    this.#record = { ...this.#record, state: 'dead', error: reason };
    this.#watch(false);
    const machine = this.#machine;
    const ended = machine?.vmm.destroy().catch((error: unknown) => log.error({ err: error }, 'dead VM not put away'));
    await Promise.race([ended, sleep(END_PATIENCE_MS)]);
    await this.#execs.lose(this.#lost());
    await ended;
    await machine?.guest[Symbol.asyncDispose]();
    await saveVmRecord(this.directory, this.#record).catch((error: unknown) =>
      log.error({ err: error }, 'VM record not saved'),
    );
  }

  async #tearDown(): Promise<void> {
    this.#state = 'destroying';
    this.#stopStart.abort(new AppError('conflict', 'the VM was destroyed while it was starting'));
    await this.#ready.catch(() => {});
    await this.#dying;
    this.#watch(false);
    const vmm = this.#machine?.vmm ?? (await this.#host.driver.adopt(this.directory));
    await vmm?.destroy();
    await this.#execs.lose(new AppError('vm_lost', 'the VM was destroyed'));
    await this.#machine?.guest[Symbol.asyncDispose]();
    await rm(this.directory, { recursive: true, force: true });
  }

  #watch(wanted: boolean): void {
    const guest = this.#machine?.guest;
    if (!wanted || guest === undefined) {
      this.#unwatch?.abort();
      this.#unwatch = undefined;
    } else if (this.#unwatch === undefined) {
      this.#unwatch = new AbortController();
      watchGuest(guest, this.#unwatch.signal).catch((error: Error) => this.#die(error.message));
    }
  }

  async #awaitExitNews(): Promise<void> {
    const exited = this.#machine?.vmm.exited;
    if (exited !== undefined) await Promise.race([exited, sleep(EXIT_NEWS_MS)]);
  }
}

/** Only what the caller got wrong stays what it is: any other failed start is a 503 that left nothing. */
function startError(error: unknown): unknown {
  if (isDiskFull(error)) return diskFullError(error);
  if (error instanceof AppError && (error.status < 500 || error.code === 'unavailable')) return error;
  const why = error instanceof AppError ? `: ${error.message}` : '';
  return new AppError('unavailable', `the VM could not be started${why}`, { cause: error, retryAfterSeconds: 5 });
}
