/** The first Ctrl-C (or SIGTERM, SIGHUP) asks what runs to stop; the second one ends the process at once. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
  readonly exitCode: number;

  constructor(signal: keyof typeof exitCodes) {
    super(`stopped by ${signal}`);
    this.exitCode = exitCodes[signal];
  }
}

const exitCodes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/** Aborted with Interrupted. To be asked for once, by commands that have something to stop. */
export function interruptSignal(): AbortSignal {
  const controller = new AbortController();
  for (const signal of Object.keys(exitCodes) as (keyof typeof exitCodes)[]) // the record's own keys
    process.on(signal, () => {
      if (controller.signal.aborted) process.exit(exitCodes[signal]);
      controller.abort(new Interrupted(signal));
    });
  return controller.signal;
}
