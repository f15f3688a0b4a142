/** Since when something has been seen to be wrong, by this process, on a clock that never goes back. */
import type { Clock } from '@fuse/runtime';

export class Sightings {
  readonly #clock: Clock;
  readonly #since = new Map<string, Map<string, number>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** 0 when this is the first time. */
  ageMs(hostId: string, vmId: string): number {
    const ofHost = this.#since.get(hostId) ?? new Map<string, number>();
    this.#since.set(hostId, ofHost);
    const since = ofHost.get(vmId) ?? this.#clock.monotonic();
    ofHost.set(vmId, since);
    return this.#clock.monotonic() - since;
  }

  forget(hostId: string, vmId: string): void {
    this.#since.get(hostId)?.delete(vmId);
  }

  keepOnly(hostId: string, vmIds: readonly string[]): void {
    const ofHost = this.#since.get(hostId);
    const kept = new Set(vmIds);
    for (const vmId of [...(ofHost?.keys() ?? [])]) if (!kept.has(vmId)) ofHost?.delete(vmId);
  }
}
