/**
 * One command in a VM, from the host's side. Its record is on disk before the guest hears of it; its output is spooled to a file
 * until the exit frame has come, over as many conversations as that takes.
 *
 *   running -> exited   the exit frame is in the log
 *           -> lost     the VM is gone, the guest forgot it, or it broke the protocol: its end is unknown
 *   running -> (nothing) the guest says that the program cannot be started: it never ran, no trace is kept
 */
import { setMaxListeners } from 'node:events';
import { mkdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Readable } from 'node:stream';
import { setImmediate as immediate } from 'node:timers/promises';
import { AppError, type ExecOpened, type ExecStdin } from '@fuse/contract';
import type { ExecSpec, GuestSignal, HostExec } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { type Logger, sleep } from '@fuse/runtime';
import type { StdinOptions } from '../guest/exec-stdin.ts';
import type { Guest } from '../guest/guest.ts';
import { flushIfThere } from '../vms/atomic-file.ts';
import { diskFullError, isDiskFull } from '../vms/disk-full.ts';
import { Alarm } from './alarm.ts';
import { ExecInput } from './exec-input.ts';
import { type ExecRecord, recordPath, saveExecRecord, stdinPath, toGuestSpec } from './exec-record.ts';
import { forgetFirstStdin, keepFirstStdin } from './first-stdin.ts';
import { Followers } from './followers.ts';
import { gapOf, type LogView } from './log-parts.ts';
import { Notifier } from './notifier.ts';
import { openSpool } from './open-spool.ts';
import { pump } from './pump.ts';
import type { Spool } from './spool.ts';
import { Terminal } from './terminal.ts';
import { TimeLimit } from './time-limit.ts';

const KILL_DEADLINE_MS = 10_000;
/** How long the exit frame of a command that the guest has killed is awaited. */
const KILLED_EXIT_MS = 5_000;
/** A guest that answers and yet has not started the command after this time is not going to. */
const START_LIMIT_MS = 60_000;
/** So soon after its start a command that still runs is written down as started. One that has ended by then is written down once. */
const STARTED_WRITE_MS = 50;

/** What an exec needs of its VM. */
export interface ExecHost {
  readonly log: Logger;
  readonly store: ObjectStore;
  /** The VM's guest; throws `vm_lost` once the VM is dead, `conflict` while it is paused. */
  guest(): Guest;
  /** The same, but waits while the VM is paused. */
  guestWhenRunning(signal: AbortSignal): Promise<Guest>;
  /** The guest does not answer although its VMM runs: the VM is given up. */
  condemn(reason: string): void;
}

/** The reason of `stop` when the VM and its execs live on without this host agent. */
export class Detached extends AppError {
  constructor() {
    super('unavailable', 'the host agent is stopping');
  }
}

export interface ExecOrigin {
  origin: 'new' | 'loaded';
  /** The VM does, at present. */
  standsStill: boolean;
  /** Of one that has ended. */
  log?: LogView | undefined;
  /** Of a new one. */
  firstStdinBase64?: string | undefined;
}

export class Exec {
  readonly #host: ExecHost;
  readonly #directory: string;
  readonly #stopping = new AbortController();
  readonly #limit: TimeLimit;
  /** Rings when nobody has watched it for as long as `kill_unwatched_ms` says. */
  readonly #unwatched = new Alarm(() => void this.#endUnwatched());
  #record: ExecRecord;
  #spool: Spool | undefined;
  /** Of one that had ended when it was loaded. */
  readonly #keptLog: LogView;
  readonly #input: ExecInput;
  /** Aborts when those who are connected have to come again. */
  #connected = newConnected();
  #flushed = false;
  #saving: Promise<void> = Promise.resolve();
  readonly #unsaved = new Alarm(() => void this.#save());
  #told = false;
  #refused = false;
  /** Whatever a reader may wait for: more log, the end. */
  readonly changes = new Notifier();
  readonly followers: Followers;
  /** Undefined when it has none. */
  readonly terminal: Terminal | undefined;
  /** Resolves once the guest runs it; rejects when it never will, or nobody can tell. */
  readonly started: Promise<void>;
  /** Settles once nothing of it runs in this process any more; never rejects. */
  readonly settled: Promise<void>;
  #onStarted: () => void = () => {};
  #onNotStarted: (reason: unknown) => void = () => {};

  /** A new one is written down and started; one that `running` says was under way is taken up again; any other is only kept. */
  constructor(
    host: ExecHost,
    directory: string,
    record: ExecRecord,
    { origin, standsStill, log, firstStdinBase64 }: ExecOrigin,
  ) {
    this.#host = host;
    this.#directory = directory;
    this.#record = record;
    this.#limit = new TimeLimit(() => void this.#overrun(), standsStill);
    this.#keptLog = log ?? { parts: [], end: 0 };
    this.followers = new Followers({ hold: record.hold });
    this.terminal = record.tty === undefined ? undefined : this.#newTerminal(record.tty);
    this.#input = new ExecInput({
      directory,
      guestId: this.guestId,
      record: () => this.#record,
      change: (change) => this.#change(change),
      guest: () => host.guest(),
      guestWhenRunning: (signal) => host.guestWhenRunning(signal),
    });
    this.started = new Promise((resolve, reject) => {
      this.#onStarted = resolve;
      this.#onNotStarted = reject;
    });
    this.started.catch(() => {});
    if (record.state !== 'running' || record.request === undefined) this.#onStarted();
    this.settled = record.state === 'running' ? this.#run(origin, firstStdinBase64) : Promise.resolve();
  }

  /** False when the command never ran, so that its id means nothing. */
  get kept(): boolean {
    return !this.#refused;
  }

  get id(): string {
    return this.#record.id;
  }

  /** What the guest calls it. */
  get guestId(): string {
    return this.#record.guest_id ?? this.#record.id;
  }

  get running(): boolean {
    return this.#record.state === 'running';
  }

  get createdAtMs(): number {
    return this.#record.created_at_ms;
  }

  get log(): LogView {
    return this.#spool ?? this.#keptLog;
  }

  /** What is in memory of its log from there on. */
  recent(position: number): Uint8Array | undefined {
    return this.#spool?.recent(position);
  }

  /** Whether this host agent has let go of it: it says no more about it. */
  get detached(): boolean {
    return this.#stopping.signal.reason instanceof Detached;
  }

  view(): HostExec {
    const { id, state, exit, error, argv, cwd, user, created_at_ms, ended_at_ms, log_truncated } = this.#record;
    const gap = gapOf(this.log);
    return {
      id,
      state,
      ...(exit === undefined ? {} : { exit }),
      argv,
      ...(cwd === undefined ? {} : { cwd }),
      ...(user === undefined ? {} : { user }),
      ...(this.terminal === undefined ? {} : { tty: { ...this.terminal.size, viewers: this.terminal.viewers } }),
      stdin_open: this.#input.open,
      created_at: new Date(created_at_ms).toISOString(),
      ...(ended_at_ms === undefined ? {} : { ended_at: new Date(ended_at_ms).toISOString() }),
      log_bytes: this.log.end,
      ...(gap === undefined ? {} : { log_gap: gap }),
      log_truncated: log_truncated || (this.#spool?.truncated ?? false),
      ...(error === undefined ? {} : { error }),
    };
  }

  /** Returns at its end, after `timeoutMs`, or when the signal aborts. */
  async waitForEnd(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const until = performance.now() + timeoutMs;
    while (this.running && !this.detached && signal?.aborted !== true) {
      const leftMs = until - performance.now();
      if (leftMs <= 0) return;
      await this.changes.wait({ timeoutMs: leftMs, ...(signal === undefined ? {} : { signal }) });
    }
  }

  /** `conflict` with details.reason=stdin_closed when it takes none. */
  async writeStdin(options: StdinOptions, body: Readable | Uint8Array, signal: AbortSignal): Promise<ExecStdin> {
    await this.started;
    return this.#input.write(options, body, signal);
  }

  /** Of one that has ended, only `tree` reaches anything: what it left in the background. */
  async signal(order: GuestSignal, signal?: AbortSignal): Promise<void> {
    await this.started;
    if (!this.running && order.tree !== true) return;
    try {
      await this.#host.guest().signalExec(this.guestId, order, signal);
    } catch (error) {
      const isForgotten = error instanceof AppError && error.code === 'not_found' && !this.running;
      if (!isForgotten) throw error;
    }
  }

  /** What a connection that begins at `offset` of the log is told first. */
  async opened(offset: number, signal: AbortSignal): Promise<ExecOpened> {
    await this.started;
    const stdin = await this.#input.status(signal);
    const { terminal } = this;
    return {
      exec_id: this.#record.id,
      offset,
      log_end: this.view().log_bytes,
      ...stdin,
      ...(terminal === undefined ? {} : { tty: terminal.size }),
    };
  }

  /** Aborts when the VM stops running: whoever is connected has to come again. */
  get connected(): AbortSignal {
    return this.#connected.signal;
  }

  disconnect(reason: Error): void {
    this.#connected.abort(reason);
    this.#connected = newConnected();
  }

  /** Ends the whole process tree, what the command left in the background too. Rejects when the guest did not confirm. */
  async kill(): Promise<void> {
    this.followers.release();
    const deadline = AbortSignal.timeout(KILL_DEADLINE_MS);
    try {
      await this.#host.guest().killExec(this.guestId, deadline);
    } catch (cause) {
      if (cause !== deadline.reason) throw cause;
      throw new AppError('unavailable', `the guest did not confirm the kill in ${KILL_DEADLINE_MS} ms`, { cause });
    }
    if (!this.running) return;
    const ended = new AbortController();
    await Promise.race([this.settled.then(() => ended.abort()), sleep(KILLED_EXIT_MS, ended.signal).catch(() => {})]);
    await this.stop(new AppError('vm_lost', 'it was killed and the guest sent no exit frame'));
  }

  /** The VM stands still: until `goOn` no time of this exec's passes. */
  standStill(): void {
    this.#limit.standStill();
  }

  /** The VM goes on after it stood still for so long. */
  goOn(stoodStillMs: number): void {
    if (this.#limit.goOn(stoodStillMs) && this.running)
      void this.#change({ asked_at_ms: this.#record.asked_at_ms + stoodStillMs });
  }

  /** What is known of it, and its output, survives the machine's end. */
  async flush(): Promise<void> {
    if (this.#flushed) return;
    const { running } = this;
    await this.#saveRest();
    const names = [stdinPath(this.#directory), recordPath(this.#directory), this.#directory];
    for (const path of [...this.log.parts.map((part) => part.path), ...names]) await flushIfThere(path);
    await flushIfThere(dirname(this.#directory));
    this.#flushed = !running;
  }

  /** Ends the spooling: the exec becomes `lost` for this reason, unless that is `Detached`. */
  async stop(reason: Error): Promise<void> {
    this.#stopping.abort(reason);
    this.changes.notify();
    await this.settled;
  }

  async #run(origin: 'new' | 'loaded', firstStdinBase64: string | undefined): Promise<void> {
    this.#watchUnwatched();
    try {
      if (origin === 'new') await this.#writeDown(firstStdinBase64);
      await this.#follow(origin === 'new');
    } catch (error) {
      if (this.detached) this.#onNotStarted(error);
      else await this.#fail(error);
    } finally {
      this.#limit.set(undefined);
      this.#unwatched.clear();
      await this.#saveRest();
      await this.#spool?.close().catch((error: unknown) => {
        this.#host.log.error({ err: error, exec_id: this.#record.id }, 'exec log not closed');
      });
      this.changes.notify();
    }
  }

  async #follow(isNew: boolean): Promise<void> {
    const spool = await openSpool(this.#directory, this.#record, {
      isNew,
      followers: this.followers,
      onTruncated: () => this.#change({ log_truncated: true }),
      onAppended: () => this.changes.notify(),
    });
    this.#spool = spool;
    this.followers.expect(spool.end);
    if (this.#record.request !== undefined) this.#limit.set(Date.now() + START_LIMIT_MS);
    else this.#limit.setRun(this.#record.asked_at_ms, this.#record.timeout_ms);
    const ended = new AbortController();
    const fed = this.started.then(() => this.#input.feedFirst(ended.signal)).catch(() => {});
    try {
      const exit = spool.exitInFile ?? (await this.#pump(spool));
      this.#confirmStart();
      ended.abort(new Error('the command has ended'));
      await fed;
      await this.#forgetFirstStdin();
      const log = { log_bytes: spool.end, log_truncated: spool.truncated };
      await this.#change({ state: 'exited', exit, stdin_file: false, ...log });
    } finally {
      ended.abort(new Error('the command is not followed any more'));
      // One that never started has no stdin to wait for.
      if (this.#record.request === undefined) await fed;
    }
  }

  async #forgetFirstStdin(): Promise<void> {
    if (this.#record.first_stdin_bytes > 0 || this.#record.stdin_file) await forgetFirstStdin(this.#directory);
  }

  #pump(spool: Spool): ReturnType<typeof pump> {
    const parts = {
      execId: this.guestId,
      spool,
      store: this.#host.store,
      log: this.#host.log,
      stdinObjectKey: this.#record.stdin_object_key,
      guest: (signal: AbortSignal) => this.#host.guestWhenRunning(signal),
      pendingSpec: () => this.#specToTell(),
      onStarted: () => this.#confirmStart(),
    };
    return pump(parts, this.#stopping.signal);
  }

  async #writeDown(firstStdinBase64: string | undefined): Promise<void> {
    const { stdin_object_key } = this.#record;
    if (stdin_object_key !== undefined) await this.#host.store.head(stdin_object_key);
    try {
      mkdirSync(this.#directory, { recursive: true, mode: 0o700 }); // a trip through the thread pool takes longer
      if (firstStdinBase64 !== undefined) await keepFirstStdin(this.#directory, firstStdinBase64);
      await saveExecRecord(this.#directory, this.#record);
    } catch (error) {
      throw isDiskFull(error) ? diskFullError(error) : error;
    }
  }

  #newTerminal(size: ExecRecord['tty'] & object): Terminal {
    const apply = async (wanted: typeof size) => {
      if (this.running) await this.#host.guest().resizeExec(this.guestId, wanted);
      await this.#change({ tty: wanted });
    };
    return new Terminal(size, apply, { log: this.#host.log, onViewers: () => this.#watchUnwatched() });
  }

  #specToTell(): ExecSpec | undefined {
    if (this.#record.request === undefined) return undefined;
    this.#told = true;
    return toGuestSpec(this.#record.request, this.#record.stdin_file);
  }

  #confirmStart(): void {
    if (this.#record.request === undefined) return;
    const { request: _told, ...rest } = this.#record;
    this.#record = rest;
    this.#limit.setRun(Date.now(), this.#record.timeout_ms);
    if (this.followers.count === 0) this.followers.expect(this.log.end);
    this.#unsaved.set(Date.now() + STARTED_WRITE_MS);
    this.#onStarted();
  }

  /** A start that the guest refused, or was never asked for, leaves no trace; everything else is an end that nobody knows. */
  async #fail(error: unknown): Promise<void> {
    const stopped = this.#stopping.signal.aborted;
    const refused = this.#record.request !== undefined && !stopped && (!this.#told || isRefusal(error));
    if (!stopped && !refused) await this.#killUnseen();
    const spool = this.#spool;
    const change: Partial<ExecRecord> = {
      state: 'lost',
      error: error instanceof Error ? error.message : String(error),
      ...(spool === undefined ? {} : { log_bytes: spool.end, log_truncated: spool.truncated }),
    };
    if (refused) {
      this.#refused = true;
      this.#record = { ...this.#record, ...change };
      await rm(this.#directory, { recursive: true, force: true });
    } else {
      await this.#forgetFirstStdin();
      await this.#change({ ...change, stdin_file: false });
      this.#host.log.warn({ err: error, exec_id: this.#record.id }, 'exec lost');
    }
    this.#onNotStarted(error);
  }

  /** What can no longer be followed must not run on. */
  async #killUnseen(): Promise<void> {
    try {
      await this.#host.guest().killExec(this.guestId, AbortSignal.timeout(KILL_DEADLINE_MS));
    } catch (error) {
      this.#host.log.warn({ err: error, exec_id: this.#record.id }, 'kill of a lost exec failed');
    }
  }

  async #overrun(): Promise<void> {
    const { id } = this.#record;
    this.#host.log.warn({ exec_id: id }, 'exec is over its time: killing it from the host');
    try {
      await this.kill();
    } catch (error) {
      this.#host.log.warn({ err: error, exec_id: id }, 'guest did not confirm the kill');
      if (this.running && !this.detached)
        this.#host.condemn(`its guest did not answer when exec ${id} overran its time`);
    }
  }

  #watchUnwatched(): void {
    const afterMs = this.#record.kill_unwatched_ms;
    const isWatched = (this.terminal?.viewers ?? 0) > 0;
    if (afterMs === undefined || isWatched || !this.running || this.detached) this.#unwatched.clear();
    else this.#unwatched.set(Date.now() + afterMs);
  }

  async #endUnwatched(): Promise<void> {
    const { id } = this.#record;
    this.#host.log.info({ exec_id: id }, 'nobody watches this terminal any more: killing it');
    try {
      await this.kill();
    } catch (error) {
      this.#host.log.debug({ err: error, exec_id: id }, 'terminal not killed yet');
      this.#watchUnwatched(); // it stands still, perhaps
    }
  }

  /** Memory is ahead of the file, by one write at a time. What cannot be written is lost with this process only. */
  #change(change: Partial<ExecRecord>): Promise<void> {
    const ended = change.state === undefined ? {} : { ended_at_ms: Date.now() };
    const { request, ...rest } = { ...this.#record, ...change, ...ended };
    // What ended is not asked for again.
    const record: ExecRecord = rest.state !== 'running' || request === undefined ? rest : { ...rest, request };
    this.#record = record;
    if (change.state !== undefined) this.changes.notify();
    return this.#save();
  }

  async #saveRest(): Promise<void> {
    if (this.#unsaved.isSet) void this.#save();
    await this.#saving;
  }

  #save(): Promise<void> {
    this.#unsaved.clear();
    const record = this.#record;
    this.#saving = this.#saving
      .then(() => immediate()) // whoever waits for what has changed is told first
      .then(() => saveExecRecord(this.#directory, record))
      .catch((error: unknown) => {
        this.#host.log.error({ err: error, exec_id: record.id }, 'exec record not saved');
      });
    return this.#saving;
  }
}

function newConnected(): AbortController {
  const connected = new AbortController();
  setMaxListeners(0, connected.signal);
  return connected;
}

function isRefusal(error: unknown): boolean {
  return error instanceof AppError && (error.code === 'invalid_argument' || error.code === 'payload_too_large');
}
