/**
 * Networks of this host's VMs: who has a card gets a slot (slot.ts), attached to the gateway under the VM's policies. Nothing of it is made before a VM asks for it. A
 * host that lacks what it takes starts VMs without a network alone.
 */
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import type { GatewayVm, VmNetworkReport } from '@fuse/host-protocol';
import type { Logger } from '@fuse/runtime';
import type { ConfinementMode } from '../confinement/confinement.ts';
import type { NetworkCard } from '../vmm/driver.ts';
import { gatewayConfig, type NetworkConfig } from './config.ts';
import { Gateway } from './gateway.ts';
import { gatewayGroupName } from './gateway-group.ts';
import { missingForNetwork } from './missing.ts';
import { cardOf, droppedPackets, type Slot, slotPrefix } from './slot.ts';
import { SlotPool } from './slot-pool.ts';
import type { VmNetworkState } from './vm-network.ts';

const POLL_MS = 1_000;

export interface HostNetworkOptions {
  dataDirectory: string;
  config: NetworkConfig;
  /** Undefined: not built. */
  programs: { gateway: string; jailer: string } | undefined;
  gatewayUid: number;
  confinement: ConfinementMode;
  log: Logger;
}

interface Attached {
  slot: Slot;
  state: VmNetworkState;
}

export class HostNetwork implements AsyncDisposable {
  readonly #options: HostNetworkOptions;
  readonly #missing: string | undefined;
  readonly #gateway: Gateway;
  readonly #pool: SlotPool;
  readonly #attached = new Map<string, Attached>();
  readonly #poll: NodeJS.Timeout;
  #takingUp: Promise<void> = Promise.resolve();

  private constructor(
    options: HostNetworkOptions,
    parts: { missing: string | undefined; gateway: Gateway; pool: SlotPool },
  ) {
    this.#options = options;
    this.#missing = parts.missing;
    this.#gateway = parts.gateway;
    this.#pool = parts.pool;
    this.#poll = setInterval(() => void this.#count(), POLL_MS).unref();
  }

  static async open(options: HostNetworkOptions): Promise<HostNetwork> {
    const { dataDirectory, config, programs, gatewayUid, confinement, log } = options;
    const prefix = await slotPrefix(dataDirectory);
    const missing =
      programs === undefined
        ? 'fuse-gateway and fuse-jailer, which `npm run setup` builds'
        : await missingForNetwork(config);
    let network: HostNetwork | undefined;
    const gateway = new Gateway({
      directory: join(dataDirectory, 'gateway'),
      gatewayPath: programs?.gateway ?? 'fuse-gateway',
      jailerPath: programs?.jailer ?? 'fuse-jailer',
      egressNamespace: config.egressNamespace,
      uid: gatewayUid,
      memory: {
        softMiB: config.gatewayMemoryMiB,
        groupName: gatewayGroupName(prefix),
        ...{ confinement, log },
      },
      config: () => gatewayConfig(config),
      log,
      onLost: () => network?.foldAll(),
    });
    const pool = await SlotPool.open({ prefix, size: config.poolSize, gateway, log });
    network = new HostNetwork(options, { missing, gateway, pool });
    return network;
  }

  /** What this host lacks for it, in words. */
  get missing(): string | undefined {
    return this.#missing;
  }

  requireAvailable(): void {
    if (this.#missing !== undefined)
      throw new AppError('unavailable', 'this host cannot give a VM a network', {
        details: { reason: 'no_network', missing: this.#missing },
        hint: `it lacks ${this.#missing}`,
      });
  }

  /** A slot of its own, in which the VM's policies hold. */
  async attach(id: string, state: VmNetworkState, signal: AbortSignal): Promise<Slot> {
    this.requireAvailable();
    const slot = await this.#pool.lease(signal);
    this.#attached.set(id, { slot, state });
    try {
      await this.#gateway.attach(id, () => this.#vmOf({ slot, state }));
      return slot;
    } catch (error) {
      await this.detach(id);
      throw error;
    }
  }

  /** A card that leads nowhere. */
  async withIdleCard<T>(work: (card: NetworkCard) => Promise<T>, signal: AbortSignal): Promise<T> {
    this.requireAvailable();
    return this.#pool.withIdle((slot) => work(cardOf(slot)), signal);
  }

  /** A VM that runs since before this host agent. Its policies hold as soon as the gateway is there; until then it reaches nothing new. */
  readopt(id: string, slot: Slot, state: VmNetworkState): void {
    this.#attached.set(id, { slot, state });
    this.#gateway.keepSlot(slot.name);
    this.#gateway.attachLater(id, () => this.#vmOf({ slot, state }));
  }

  /** Those of its state, of a VM that is attached: they hold when this resolves. */
  async setPolicies(id: string): Promise<void> {
    const attached = this.#attached.get(id);
    if (attached === undefined) return;
    await this.#gateway.attach(id, () => this.#vmOf(attached));
  }

  /** Its connections are cut and its slot is gone. Also when it has none. */
  async detach(id: string): Promise<void> {
    const attached = this.#attached.get(id);
    if (attached === undefined) return;
    this.#attached.delete(id);
    const report = await this.#gateway.report(id).catch(() => undefined);
    const totals = await this.#gateway.detach(id).catch((error: unknown) => {
      this.#options.log.error({ err: error, vm_id: id }, 'VM not detached from the gateway');
      return undefined;
    });
    if (totals !== undefined) attached.state.count(totals);
    attached.state.fold(report?.connections);
    await this.#removeSlot(attached.slot.name);
  }

  async report(id: string, state: VmNetworkState): Promise<VmNetworkReport> {
    const attached = this.#attached.get(id);
    if (attached === undefined) return state.report(undefined);
    const [now, dropped] = await Promise.all([this.#gateway.report(id), droppedPackets(attached.slot.name)]);
    return state.report(now, dropped);
  }

  /** What an earlier host agent left is removed, but for the slots of VMs that were taken up again; those get a gateway. */
  takeUp(): Promise<void> {
    this.#takingUp = this.#missing === undefined ? this.#takeUp() : Promise.resolve();
    return this.#takingUp;
  }

  async #takeUp(): Promise<void> {
    await this.#gateway.takeUp(); // first: it may have listeners in what is removed
    await this.#pool.sweep(new Set([...this.#attached.values()].map(({ slot }) => slot.name)));
  }

  /** With no VM left, nothing stays; otherwise the gateway serves them on. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#poll);
    await this.#takingUp.catch(() => {}); // whoever began it hears of it
    await this.#pool.close();
    await (this.#attached.size === 0 ? this.#gateway.end() : this.#gateway.letGo());
  }

  foldAll(): void {
    for (const { state } of this.#attached.values()) state.fold();
  }

  /** What cannot be removed now is swept by the next host agent. */
  async #removeSlot(name: string): Promise<void> {
    try {
      await this.#pool.remove(name);
    } catch (error) {
      this.#options.log.error({ err: error, slot: name }, 'network slot not removed');
    }
  }

  #vmOf({ slot, state }: Attached): GatewayVm {
    const rate = this.#options.config.vmBytesPerSecond;
    return {
      slot: slot.name,
      policies: [...state.policies],
      ...(rate === undefined ? {} : { rate_bytes_per_second: rate }),
    };
  }

  async #count(): Promise<void> {
    if (this.#attached.size === 0 || !this.#gateway.isUp) return;
    try {
      for (const totals of await this.#gateway.list()) this.#attached.get(totals.id)?.state.count(totals);
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the gateway does not say what has passed');
    }
  }
}
