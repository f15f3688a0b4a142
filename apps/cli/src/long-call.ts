/** A call that may take seconds: says so when it does, and leaves it cleanly when interrupted. */
import type { Cli } from './cli.ts';
import { Interrupted, interruptSignal } from './interrupt.ts';

const SAID_AFTER_MS = 1_000;

export interface LongCall {
  /** What is done meanwhile, for people: "taking a snapshot of fuse-demo". */
  doing: string;
  /** The command that shows what became of it. */
  lookAgain: string;
}

export async function longCall<T>(
  cli: Cli,
  { doing, lookAgain }: LongCall,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timer = setTimeout(() => cli.io.say(`${doing} …`), SAID_AFTER_MS);
  try {
    return await call(interruptSignal());
  } catch (error) {
    if (error instanceof Interrupted)
      cli.io.say(`interrupted while ${doing}; it may be done all the same: ${lookAgain}`);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
