/**
 * The host's one gateway (gateway/, host-protocol/src/gateway.ts): started when a slot first needs it, found again by the next host agent, and started anew when it
 * has ended. What slots and VMs it should have is kept here and given to each new one; until then nothing listens in the slots, so nothing gets through.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { GatewayConfig, GatewayReport, GatewayTotals, GatewayVm } from '@fuse/host-protocol';
import { type Logger, sleep } from '@fuse/runtime';
import { runProgram } from '../vmm/children.ts';
import type { VmmProcess } from '../vmm/process.ts';
import { GatewayClient } from './gateway-client.ts';
import { removeGatewayGroup } from './gateway-group.ts';
import { boundGatewayLog, findGateway, findOrStartGateway, type GatewayProcessOptions } from './gateway-process.ts';
import { namespacePathOf, PROGRAM_PATH } from './slot.ts';

const LISTENERS_SOCKET = 'listeners.sock';
const RESTART_DELAYS_MS = [0, 200, 1_000, 5_000] as const;
const UPKEEP_MS = 30_000;
/** This many calls in a row without an answer are the end of it. */
const MAX_UNANSWERED = 3;

export interface GatewayOptions extends GatewayProcessOptions {
  jailerPath: string;
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
  /** Of an earlier host agent, while it is ended. */
  #endingOld: Promise<void> | undefined;
  #config = '';
  #upkeep: NodeJS.Timeout | undefined;
  #unanswered = 0;
  /** Policies of one VM are put one after the other, so that the last ones are those that stay. */
  readonly #puts = new Map<string, Promise<void>>();
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
    await this.#puts.get(id)?.catch(() => {});
    this.#puts.delete(id);
    return this.#whileUp(() => this.#client.deleteVm(id));
  }

  report(id: string): Promise<GatewayReport | undefined> {
    return this.#whileUp(() => this.#client.report(id));
  }

  /** Asked all the time, so it also finds out that a gateway is stuck. */
  async list(): Promise<GatewayTotals[]> {
    try {
      const all = (await this.#whileUp(() => this.#client.list())) ?? [];
      this.#unanswered = 0;
      return all;
    } catch (error) {
      this.#unanswered += 1;
      if (this.#unanswered % MAX_UNANSWERED === 0) await this.#process?.kill();
      throw error;
    }
  }

  /** One that an earlier host agent left is found again, or another is started, where somebody needs it; otherwise it is ended, and whoever needs one meanwhile waits for that. */
  async takeUp(): Promise<void> {
    const isWanted = this.#vms.size > 0 || this.#process !== undefined || this.#bringingUp !== undefined;
    if (!isWanted) {
      this.#endingOld = this.#endOld().finally(() => {
        this.#endingOld = undefined;
      });
      return this.#endingOld;
    }
    await this.ensure().catch((error: unknown) => {
      if (this.#closed) return;
      this.#options.log.error({ err: error }, 'gateway not started');
      void this.#restart();
    });
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
    clearInterval(this.#upkeep);
    await this.#bringingUp?.catch(() => {});
  }

  /** Also one of an earlier host agent. */
  async end(): Promise<void> {
    await this.letGo();
    const process = this.#process ?? (await findGateway(this.#options));
    this.#process = undefined;
    await process?.kill();
    await removeGatewayGroup(this.#options.memory);
    await rm(this.#options.directory, { recursive: true, force: true });
  }

  async #endOld(): Promise<void> {
    await (await findGateway(this.#options))?.kill();
    await removeGatewayGroup(this.#options.memory);
  }

  async #bringUp(): Promise<void> {
    const { directory, log } = this.#options;
    await this.#endingOld?.catch(() => {}); // whoever began it hears of it
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { process, adopted } = await findOrStartGateway(this.#options, this.#client);
    let ended = false;
    void process.exited.then(({ code, signal }) => {
      ended = true;
      this.#lost(process, signal ?? `code ${code}`);
    });
    await this.#provide(adopted);
    if (ended) throw new AppError('unavailable', 'the gateway ended at once');
    this.#process = process;
    for (const id of this.#vms.keys())
      await this.#put(id).catch((error: unknown) =>
        log.error({ err: error, vm_id: id }, 'VM not attached to the gateway'),
      );
    this.#upkeep ??= setInterval(() => void this.#keepUp(), UPKEEP_MS).unref();
    log.info({ gateway_pid: process.pid, adopted, slots: this.#slots.size, vms: this.#vms.size }, 'gateway up');
  }

  async #provide(adopted: boolean): Promise<void> {
    const config = await this.#options.config();
    await this.#client.putConfig(config);
    this.#config = JSON.stringify(config);
    if (!adopted)
      for (const slot of this.#slots)
        await this.#listen(slot).catch((error: unknown) =>
          this.#options.log.error({ err: error, slot }, 'the gateway does not serve a slot'),
        );
    for (const { id } of await this.#client.list()) if (!this.#vms.has(id)) await this.#client.deleteVm(id);
  }

  #put(id: string): Promise<void> {
    const put = (this.#puts.get(id) ?? Promise.resolve()).catch(() => {}).then(() => this.#putNow(id));
    this.#puts.set(id, put);
    return put;
  }

  async #putNow(id: string): Promise<void> {
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
    const { jailerPath, directory } = this.#options;
    const args = [
      'listen',
      '--namespace',
      namespacePathOf(slot),
      '--slot',
      slot,
      '--gateway',
      join(directory, LISTENERS_SOCKET),
    ];
    await runProgram(jailerPath, args, { path: PROGRAM_PATH });
  }

  /** The host's addresses and resolvers may be others after a while. */
  async #keepUp(): Promise<void> {
    try {
      await boundGatewayLog(this.#options.directory);
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
    this.#options.log.error({ gateway_pid: process.pid, how }, 'the gateway has ended: it is started anew');
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
