/** When an exec is given up from here, should its guest not have ended it. No time passes while the VM stands still. */
import { Alarm } from './alarm.ts';

/** What the guest may need to end a command by itself once its time is up. */
const OVERRUN_GRACE_MS = 15_000;

export class TimeLimit {
  readonly #alarm: Alarm;
  #dueAtMs: number | undefined;
  #standsStill: boolean;

  constructor(onDue: () => void, standsStill: boolean) {
    this.#alarm = new Alarm(onDue);
    this.#standsStill = standsStill;
  }

  /** Undefined: never. */
  set(dueAtMs: number | undefined): void {
    this.#dueAtMs = dueAtMs;
    if (dueAtMs === undefined || this.#standsStill) this.#alarm.clear();
    else this.#alarm.set(dueAtMs);
  }

  /** For a command that runs since then; a timeout of 0 is none. */
  setRun(startedAtMs: number, timeoutMs: number): void {
    const notBeforeMs = this.#standsStill ? 0 : Date.now();
    this.set(timeoutMs === 0 ? undefined : Math.max(startedAtMs + timeoutMs, notBeforeMs) + OVERRUN_GRACE_MS);
  }

  standStill(): void {
    this.#standsStill = true;
    this.#alarm.clear();
  }

  /** After so long; false when there is no limit. */
  goOn(stoodStillMs: number): boolean {
    this.#standsStill = false;
    if (this.#dueAtMs === undefined) return false;
    this.set(this.#dueAtMs + stoodStillMs);
    return true;
  }
}
