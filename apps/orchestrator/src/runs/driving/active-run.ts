/** A run that this process drives: its hold, and the two ways to interrupt it. */
import type { EnvironmentRow, RunRow } from '../../db/schema.ts';
import { ProcessStops } from '../../environments/start-environment.ts';
import type { Drive } from './drive.ts';

export interface HeldRun {
  run: RunRow;
  owner: string;
  /** Of performance.now(). */
  heldUntil: number;
  /** As just admitted by this process. */
  environment?: EnvironmentRow | undefined;
}

export class ActiveRun {
  readonly drive: Drive;
  readonly done: Promise<void>;
  readonly #stop = new AbortController();
  readonly #cancel = new AbortController();
  /** Of performance.now(): until then nobody can have taken it over. */
  #heldUntil: number;

  constructor({ run, owner, heldUntil, environment }: HeldRun, go: (drive: Drive) => Promise<void>) {
    this.#heldUntil = heldUntil;
    const hold = { runId: run.id, owner, version: run.version };
    this.drive = {
      hold,
      stop: this.#stop.signal,
      cancel: this.#cancel.signal,
      markedRunning: false,
      admitted: environment,
      at: undefined,
      saving: undefined,
    };
    if (run.cancel_requested_at !== null) this.cancel();
    this.done = go(this.drive);
  }

  get heldUntil(): number {
    return this.#heldUntil;
  }

  renewed(heldUntil: number): void {
    this.#heldUntil = heldUntil;
  }

  cancel(): void {
    this.#cancel.abort(new Error('the run is cancelled'));
  }

  /** Whatever is under way is left to whoever takes the run over. */
  stop(): void {
    this.#stop.abort(new ProcessStops());
  }
}
