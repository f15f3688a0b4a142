/**
 * The host's one gateway (gateway/, host-protocol/src/gateway.ts): started when a slot first needs it, found again by the next host agent, and started anew when it
 * has ended. What slots and VMs it should have is kept here and given to each new one; until then nothing listens in the slots, so nothing gets through.
 */
import { mkdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { AppError } from '@fuse/contract';
import {
  GATEWAY_PROTOCOL,
  type GatewayConfig,
  type GatewayReport,
  type GatewayTotals,
  type GatewayVm,
} from '@fuse/host-protocol';
import { type Logger, sleep } from '@fuse/runtime';
import { runProgram, startChild } from '../vmm/children.ts';
import { VmmProcess } from '../vmm/process.ts';
import { CONTROL_SOCKET, GatewayClient } from './gateway-client.ts';
import { gatewayCommand } from './gateway-command.ts';
import { namespacePathOf, PROGRAM_PATH } from './slot.ts';

const LISTENERS_SOCKET = 'listeners.sock';
const LOG_FILE = 'gateway.log';
const READY_DEADLINE_MS = 10_000;
const READY_POLL_MS = 10;
const RESTART_DELAYS_MS = [0, 200, 1_000, 5_000] as const;
const CONFIG_CHECK_MS = 60_000;

export interface GatewayOptions {
  directory: string;
  programs: { gateway: string; jailer: string };
  /** The network namespace that it connects from; undefined: the host's. */
  egressNamespace: string | undefined;
  uid: number;
  config: () => Promise<GatewayConfig>;
  log: Logger;
  /** It has ended, and with it what it had counted. */
  onLost: () => void;
}

export class Gateway {
  readonly #options: GatewayOptions;
  readonly #client: GatewayClient;
  readonly #slots = new Set<string>();
  readonly #vms = new Map<string, () => GatewayVm>();
  #process: VmmProcess | undefined;
  #bringingUp: Promise<void> | undefined;
  #config = '';
  #configCheck: NodeJS.Timeout | undefined;
  /** Nothing is started, and an end is no loss, from here on. */
  #closed = false;

  constructor(options: GatewayOptions) {
    this.#options = options;
    this.#client = new GatewayClient(options.directory);
  }

  get isUp(): boolean {
    return this.#process !== undefined;
  }

  /** Hands it the listeners of a slot that has been made. */
  async addSlot(slot: string): Promise<void> {
    await this.ensure();
    this.#slots.add(slot);
    await this.#listen(slot);
  }

  /** A slot of an earlier host agent's, which a gateway that is still there has. */
  keepSlot(slot: string): void {
    this.#slots.add(slot);
  }

  async removeSlot(slot: string): Promise<void> {
    this.#slots.delete(slot);
    await this.#whileUp(() => this.#client.deleteSlot(slot));
  }

  /** Enforced when this resolves. `vm` is asked again whenever a new gateway needs to know. */
  async attach(id: string, vm: () => GatewayVm): Promise<void> {
    this.#vms.set(id, vm);
    await this.ensure();
    await this.#put(id);
  }

  /** Like `attach`, when there is a gateway again. */
  attachLater(id: string, vm: () => GatewayVm): void {
    this.#vms.set(id, vm);
  }

  /** Undefined when it had nothing of it. */
  async detach(id: string): Promise<GatewayTotals | undefined> {
    this.#vms.delete(id);
    return this.#whileUp(() => this.#client.deleteVm(id));
  }

  report(id: string): Promise<GatewayReport | undefined> {
    return this.#whileUp(() => this.#client.report(id));
  }

  async list(): Promise<GatewayTotals[]> {
    return (await this.#whileUp(() => this.#client.list())) ?? [];
  }

  /** Those who ask at the same time wait for one try. */
  async ensure(): Promise<void> {
    if (this.#closed) throw new AppError('unavailable', 'the host agent is stopping');
    if (this.#process !== undefined) return;
    this.#bringingUp ??= this.#bringUp().finally(() => {
      this.#bringingUp = undefined;
    });
    await this.#bringingUp;
  }

  /** It runs on. */
  async letGo(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#configCheck);
    await this.#bringingUp?.catch(() => {});
  }

  /** Also one of an earlier host agent. */
  async end(): Promise<void> {
    await this.letGo();
    const process = this.#process ?? (await this.#find());
    this.#process = undefined;
    await process?.kill();
    await rm(this.#options.directory, { recursive: true, force: true });
  }

  async #bringUp(): Promise<void> {
    const { directory, log } = this.#options;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const found = await this.#find();
    const adopted = found !== undefined && (await this.#answers(READY_DEADLINE_MS / 5));
    if (found !== undefined && !adopted) await found.kill();
    const process = found !== undefined && adopted ? found : await this.#start();
    let ended = false;
    void process.exited.then(({ code, signal }) => {
      ended = true;
      this.#lost(process, signal ?? `code ${code}`);
    });
    await this.#provide(adopted);
    if (ended) throw new AppError('unavailable', 'the gateway ended at once');
    this.#process = process;
    for (const id of this.#vms.keys()) await this.#put(id);
    this.#configCheck ??= setInterval(() => void this.#refreshConfig(), CONFIG_CHECK_MS).unref();
    log.info({ pid: process.pid, adopted, slots: this.#slots.size, vms: this.#vms.size }, 'gateway up');
  }

  #find(): Promise<VmmProcess | undefined> {
    return VmmProcess.adopt(this.#options.directory, basename(this.#options.programs.gateway));
  }

  async #start(): Promise<VmmProcess> {
    const { directory, programs } = this.#options;
    for (const socket of [CONTROL_SOCKET, LISTENERS_SOCKET]) await rm(join(directory, socket), { force: true });
    const log = { path: join(directory, LOG_FILE), flags: 'a' } as const;
    const { pid } = await startChild({
      ...gatewayCommand(programs.gateway, this.#options),
      ...{ cwd: directory, env: {}, session: true },
      stdio: ['ignore', log, log],
    });
    const process = await VmmProcess.follow({ directory, program: programs.gateway, pid });
    if (await this.#answers(READY_DEADLINE_MS, process)) return process;
    await process.kill();
    throw new AppError('unavailable', 'the gateway did not start', { hint: `its log is ${join(directory, LOG_FILE)}` });
  }

  async #answers(deadlineMs: number, process?: VmmProcess): Promise<boolean> {
    let ended = false;
    void process?.exited.then(() => {
      ended = true;
    });
    for (const from = performance.now(); performance.now() - from < deadlineMs && !ended; ) {
      const health = await this.#client.health().catch(() => undefined);
      if (health !== undefined) return health.protocol === GATEWAY_PROTOCOL;
      await sleep(READY_POLL_MS);
    }
    return false;
  }

  async #provide(adopted: boolean): Promise<void> {
    const config = await this.#options.config();
    await this.#client.putConfig(config);
    this.#config = JSON.stringify(config);
    if (!adopted) for (const slot of this.#slots) await this.#listen(slot);
    for (const { id } of await this.#client.list()) if (!this.#vms.has(id)) await this.#client.deleteVm(id);
  }

  async #put(id: string): Promise<void> {
    const vm = this.#vms.get(id);
    if (vm === undefined) return;
    try {
      await this.#client.putVm(id, vm());
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'not_found')) throw error;
      await this.#listen(vm().slot);
      await this.#client.putVm(id, vm());
    }
  }

  async #listen(slot: string): Promise<void> {
    const { programs, directory } = this.#options;
    const args = [
      'listen',
      '--namespace',
      namespacePathOf(slot),
      '--slot',
      slot,
      '--gateway',
      join(directory, LISTENERS_SOCKET),
    ];
    await runProgram(programs.jailer, args, { path: PROGRAM_PATH });
  }

  async #refreshConfig(): Promise<void> {
    try {
      const config = await this.#options.config();
      if (this.#process === undefined || JSON.stringify(config) === this.#config) return;
      await this.#client.putConfig(config);
      this.#config = JSON.stringify(config);
    } catch (error) {
      this.#options.log.error({ err: error }, 'gateway not configured anew');
    }
  }

  /** What a gateway that ends meanwhile had is gone, and so is what was asked of it. */
  async #whileUp<T>(ask: () => Promise<T>): Promise<T | undefined> {
    await this.#bringingUp?.catch(() => {});
    const process = this.#process;
    if (process === undefined) return undefined;
    try {
      return await ask();
    } catch (error) {
      if (this.#process !== process) return undefined;
      throw error;
    }
  }

  #lost(process: VmmProcess, how: string): void {
    if (this.#process === process) this.#process = undefined;
    if (this.#closed) return;
    this.#options.log.error({ pid: process.pid, how }, 'the gateway has ended: it is started anew');
    this.#options.onLost();
    void this.#restart();
  }

  async #restart(): Promise<void> {
    for (
      let attempt = 0;
      !this.#closed && this.#process === undefined && this.#slots.size + this.#vms.size > 0;
      attempt++
    ) {
      await sleep(RESTART_DELAYS_MS[Math.min(attempt, RESTART_DELAYS_MS.length - 1)] ?? 0);
      await this.ensure().catch((error: unknown) => {
        if (!this.#closed) this.#options.log.error({ err: error }, 'gateway not started');
      });
    }
  }
}
