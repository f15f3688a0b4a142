/** Slots that are made ahead, so that a VM which is started does not wait for one. A slot is one VM's, once; none is made before the first VM asks. */
import type { Logger } from '@fuse/runtime';
import type { Gateway } from './gateway.ts';
import { makeSlot, removeSlot, type Slot, slotNames } from './slot.ts';

export interface SlotPoolOptions {
  prefix: string;
  /** How many are kept ready. */
  size: number;
  gateway: Gateway;
  log: Logger;
}

export class SlotPool {
  readonly #options: SlotPoolOptions;
  readonly #ready: Slot[] = [];
  readonly #stop = new AbortController();
  readonly #left: readonly string[];
  #lastNumber: number;
  #refilling: Promise<void> | undefined;

  private constructor(options: SlotPoolOptions, left: readonly string[]) {
    this.#options = options;
    this.#left = left;
    this.#lastNumber = Math.max(0, ...left.map((name) => Number(name.slice(options.prefix.length))));
  }

  static async open(options: SlotPoolOptions): Promise<SlotPool> {
    return new SlotPool(options, await slotNames(options.prefix));
  }

  /** Its listeners are the gateway's; nobody is attached. */
  async lease(signal: AbortSignal): Promise<Slot> {
    const slot = this.#ready.shift() ?? (await this.#make(signal));
    this.refill();
    return slot;
  }

  /** One that leads nowhere, not even to the gateway: for as long as `work` takes. */
  async withIdle<T>(work: (slot: Slot) => Promise<T>, signal: AbortSignal): Promise<T> {
    const slot = await makeSlot(this.#nextName(), signal);
    try {
      return await work(slot);
    } finally {
      await removeSlot(slot.name);
    }
  }

  refill(): void {
    if (this.#stop.signal.aborted || this.#refilling !== undefined) return;
    this.#refilling = this.#fill()
      .catch((error: unknown) => {
        if (!this.#stop.signal.aborted) this.#options.log.error({ err: error }, 'network slot not made ahead');
      })
      .finally(() => {
        this.#refilling = undefined;
      });
  }

  async remove(name: string): Promise<void> {
    try {
      await this.#options.gateway.removeSlot(name);
    } finally {
      await removeSlot(name);
    }
  }

  /** What an earlier host agent left, but for what is still in use. */
  async sweep(keep: ReadonlySet<string>): Promise<void> {
    for (const name of this.#left) if (!keep.has(name)) await this.remove(name);
  }

  /** Removes those that are ready. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the pool is closed'));
    await this.#refilling;
    for (const { name } of this.#ready.splice(0)) await this.remove(name);
  }

  async #fill(): Promise<void> {
    while (this.#ready.length < this.#options.size) {
      const slot = await this.#make(this.#stop.signal);
      if (this.#stop.signal.aborted) return this.remove(slot.name);
      this.#ready.push(slot);
    }
  }

  async #make(signal: AbortSignal): Promise<Slot> {
    const { gateway } = this.#options;
    const slot = await makeSlot(this.#nextName(), signal);
    try {
      await gateway.addSlot(slot.name);
      return slot;
    } catch (error) {
      await this.remove(slot.name);
      throw error;
    }
  }

  #nextName(): string {
    return `${this.#options.prefix}${++this.#lastNumber}`;
  }
}
