/**
 * A VM's state, and what every operation on it works with. An operation runs in its turn, so that it alone changes record and machine; only a death
 * and a destruction come in between.
 *
 *   starting -> running -> dead              its VMM ended, or its guest stopped answering: `error` says why
 *            -> (gone)                       the start failed: nothing is left
 *   running  -> pausing -> paused            or running again, when it could not be paused
 *   paused   -> resuming -> running          or paused again
 *   running, paused, dead -> resuming -> running | dead      a restore in place
 *   any      -> destroying -> (gone)
 */
import { setMaxListeners } from 'node:events';
import { join } from 'node:path';
import { AppError, NO_NETWORK } from '@fuse/contract';
import type { HostVm } from '@fuse/host-protocol';
import { type Logger, sleep } from '@fuse/runtime';
import { Execs } from '../execs/execs.ts';
import { Notifier } from '../execs/notifier.ts';
import type { Guest } from '../guest/guest.ts';
import type { NetworkPast } from '../network/network-past.ts';
import { VmNetworkState } from '../network/vm-network.ts';
import { watchGuest } from './guest-watch.ts';
import { HealthWatch } from './health-watch.ts';
import type { Machine } from './machine.ts';
import type { VmHost } from './vm-host.ts';
import { saveVmRecord, type VmRecord, withoutKeys } from './vm-record.ts';

/** Nobody is told that a VM is gone while its VMM runs, unless that will not end. */
const END_PATIENCE_MS = 2_000;

export class VmCore {
  readonly host: VmHost;
  readonly directory: string;
  readonly log: Logger;
  readonly execs: Execs;
  readonly health: HealthWatch;
  /** Aborts when the host agent lets go of it, or it is destroyed. */
  readonly stopping = new AbortController();
  /** Aborts when it is destroyed. */
  readonly ending = new AbortController();
  /** Of a VM with a network card. */
  network: VmNetworkState | undefined;
  readonly #changes = new Notifier();
  #record: VmRecord;
  #state: HostVm['state'];
  #machine: Machine | undefined;
  #detached = false;
  #standsStill = false;
  #running = 0;
  #unwatch: AbortController | undefined;
  #dying: Promise<void> | undefined;
  #lastTurn: Promise<unknown> = Promise.resolve();
  #lastSave: Promise<unknown> = Promise.resolve();

  constructor(host: VmHost, record: VmRecord) {
    this.host = host;
    this.directory = join(host.vmsDirectory, record.id);
    this.log = host.log.child({ vm_id: record.id });
    this.#record = record;
    this.#state = record.state;
    for (const { signal } of [this.stopping, this.ending]) setMaxListeners(0, signal);
    if (record.network_card === true) this.insertCard(record.network_past);
    const isNew = record.state === 'starting' && record.order.seed === undefined;
    this.health = new HealthWatch({ isNew, log: this.log });
    this.execs = new Execs({
      directory: join(this.directory, 'execs'),
      vmEnv: record.order.env ?? {},
      host: {
        log: this.log,
        store: host.store,
        guest: () => this.guest(),
        guestWhenRunning: (signal) => this.guestWhenRunning(signal),
        condemn: (reason) => {
          if (!this.#standsStill) void this.die(reason);
        },
      },
      scope: () => this.#record.exec_scope,
      onRunning: (count) => {
        this.#running = count;
        this.#watch();
      },
    });
  }

  get state(): HostVm['state'] {
    return this.#state;
  }

  get record(): VmRecord {
    return this.#record;
  }

  get machine(): Machine | undefined {
    return this.#machine;
  }

  get machineDirectory(): string {
    return join(this.directory, this.#record.machine);
  }

  /** What is being destroyed stays that. */
  become(state: HostVm['state']): void {
    if (this.#state !== 'destroying') this.#state = state;
    if (state === 'paused' || state === 'resuming')
      this.execs.disconnect(new AppError('conflict', `the VM is ${state}`, { details: { state } }));
    this.#watch();
    this.#changes.notify();
  }

  /** In memory once it is on disk; one after the other. */
  save(change: Partial<VmRecord> | ((record: VmRecord) => VmRecord)): Promise<void> {
    const saved = this.#lastSave.then(async () => {
      const record = typeof change === 'function' ? change(this.#record) : { ...this.#record, ...change };
      await saveVmRecord(this.directory, record);
      this.#record = record;
    });
    this.#lastSave = saved.catch(() => {});
    return saved;
  }

  /** Operations of one VM go one after the other. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#lastTurn.then(() => {
      this.stopping.signal.throwIfAborted();
      return work();
    });
    this.#lastTurn = turn.catch(() => {});
    return turn;
  }

  /** Resolves once no operation is under way. */
  async idle(): Promise<void> {
    await this.#lastTurn;
  }

  hold(machine: Machine): void {
    this.#machine = machine;
    this.#watch();
    void machine.vmm.exited.then(({ code, signal, logTail, outOfMemory }) => {
      if (this.#machine !== machine) return;
      const how = outOfMemory
        ? 'out of memory: it had all that its VM may take of the host'
        : (signal ?? `code ${code}`);
      void this.die(`its VMM ended (${how})${logTail === '' ? '' : `: ${logTail.trim()}`}`);
    });
  }

  /** Before it is started: its machine will have a card. */
  insertCard(past?: NetworkPast): void {
    this.network ??= new VmNetworkState(this.#record.order.network?.policies ?? [NO_NETWORK], past);
  }

  /** Its machine will be one of a snapshot without. */
  removeCard(): void {
    this.network = undefined;
  }

  /** What a start takes of it. */
  get networkOrder(): { vmId: string; state: VmNetworkState } | undefined {
    return this.network === undefined ? undefined : { vmId: this.#record.id, state: this.network };
  }

  /** Of a VM without a VMM: its slot goes, what has passed is kept. */
  async disconnect(): Promise<void> {
    const { network } = this;
    if (network === undefined) return;
    await this.host.network.detach(this.#record.id);
    await this.save((record) => ({ ...withoutKeys(record, ['slot']), network_past: network.past }));
  }

  /** The end of its VMM is no death any more. */
  letGo(): Machine | undefined {
    const machine = this.#machine;
    this.#machine = undefined;
    this.#watch();
    return machine;
  }

  /** The machine of a VM that runs; throws what to tell whoever asked otherwise. */
  runningMachine(): Machine {
    if (this.#state === 'running' && this.#machine !== undefined) return this.#machine;
    if (this.#state === 'dead') throw this.lost();
    throw new AppError('conflict', `the VM is ${this.#state}`, { details: { state: this.#state } });
  }

  guest(): Guest {
    return this.runningMachine().guest;
  }

  /** Waits out a pause. */
  async guestWhenRunning(signal: AbortSignal): Promise<Guest> {
    while (['pausing', 'paused', 'resuming'].includes(this.#state)) {
      await this.#changes.wait({ signal });
      signal.throwIfAborted();
    }
    return this.guest();
  }

  lost(cause?: unknown): AppError {
    return new AppError('vm_lost', `the VM is gone: ${this.#record.error ?? 'it was destroyed'}`, { cause });
  }

  /** Nobody's time passes and no silence of the guest counts until `goOn`. */
  standStill(): void {
    this.#standsStill = true;
    this.execs.standStill();
    this.#watch();
  }

  goOn(stoodStillMs: number): void {
    this.#standsStill = false;
    this.execs.goOn(stoodStillMs);
    this.#watch();
  }

  /** Also ends a VMM that still runs: a VM that was given up must not go on unseen. */
  die(reason: string): Promise<void> {
    const mortal = ['running', 'pausing', 'dead'].includes(this.#state);
    if (this.#dying === undefined && !this.#detached && mortal) this.#dying = this.#bury(reason);
    return this.#dying ?? Promise.resolve();
  }

  /** A dead VM gets a machine again, or loses the one that it had. */
  async unbury(): Promise<void> {
    await this.#dying;
    this.#dying = undefined;
  }

  /** From here on nothing is recorded of what becomes of it. */
  async detach(): Promise<void> {
    this.#detached = true;
    await this.#dying;
    this.#watch();
    await this.execs.detach();
    await this.#machine?.guest[Symbol.asyncDispose]();
  }

  async #bury(reason: string): Promise<void> {
    this.become('dead');
    if (this.#record.state !== 'dead') this.log.warn({ reason }, 'VM died');
    this.#record = { ...this.#record, error: reason };
    const machine = this.#machine;
    const ended = machine?.vmm
      .destroy()
      .catch((error: unknown) => this.log.error({ err: error }, 'dead VM not put away'));
    await Promise.race([ended, sleep(END_PATIENCE_MS)]);
    await this.execs.lose(this.lost());
    await ended;
    await machine?.guest[Symbol.asyncDispose]();
    await this.disconnect().catch((error: unknown) => this.log.error({ err: error }, 'network slot not removed'));
    await this.save({ state: 'dead' }).catch((error: unknown) => this.log.error({ err: error }, 'VM record not saved'));
  }

  #watch(): void {
    const guest = this.#machine?.guest;
    const isAwake = this.#state === 'running' && !this.#standsStill && !this.#detached;
    this.health.follow(isAwake ? guest : undefined);
    const wanted = this.#running > 0 && isAwake;
    if (!wanted || guest === undefined) {
      this.#unwatch?.abort();
      this.#unwatch = undefined;
    } else if (this.#unwatch === undefined) {
      this.#unwatch = new AbortController();
      watchGuest(guest, this.#unwatch.signal).catch((error: Error) => this.die(error.message));
    }
  }
}
