/**
 * A driver that also takes over VMs of the one that is not used here any more, or not yet: what runs on a host outlives the choice of its VMM. They go on until they are paused
 * or destroyed; what starts anew starts under this one.
 */
import type { BootSpec, RestoreSpec, Vmm, VmmDriver } from './driver.ts';

export interface OtherVmms {
  /** Whether the VM of this directory, if there is one, is of the other kind. */
  isIn(directory: string): Promise<boolean>;
  adopt(directory: string): Promise<Vmm | undefined>;
}

export class AdoptingDriver implements VmmDriver {
  readonly #driver: VmmDriver;
  readonly #other: OtherVmms;

  constructor(driver: VmmDriver, other: OtherVmms) {
    this.#driver = driver;
    this.#other = other;
  }

  get name(): VmmDriver['name'] {
    return this.#driver.name;
  }

  get accelerator(): VmmDriver['accelerator'] {
    return this.#driver.accelerator;
  }

  get confined(): boolean {
    return this.#driver.confined;
  }

  fingerprint(): Promise<string> {
    return this.#driver.fingerprint();
  }

  expectStart(): void {
    this.#driver.expectStart?.();
  }

  boot(spec: BootSpec, signal?: AbortSignal): Promise<Vmm> {
    return this.#driver.boot(spec, signal);
  }

  restore(spec: RestoreSpec, signal?: AbortSignal): Promise<Vmm> {
    return this.#driver.restore(spec, signal);
  }

  async adopt(directory: string): Promise<Vmm | undefined> {
    const driver = (await this.#other.isIn(directory)) ? this.#other : this.#driver;
    return driver.adopt(directory);
  }
}
