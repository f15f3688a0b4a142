/** A command whose caller leaves is ended, with all that it started, before this process is: nobody is left to do it then. */
import { setTimeout as delay } from 'node:timers/promises';
import { type FuseClient, isNotFound } from '@fuse/sdk';
import type { Cli } from './cli.ts';

const PATIENCE_MS = 10_000;
const SAID_AFTER_MS = 1_000;
/** One that is not known yet may be on its way to its start. */
const UNKNOWN_PATIENCE_MS = 2_000;
const AGAIN_MS = 200;

export async function endExec(cli: Cli, client: FuseClient, id: string, execId: string): Promise<void> {
  const timer = setTimeout(() => cli.io.say('ending the command … (Ctrl-C: leave at once)'), SAID_AFTER_MS);
  const startedMs = performance.now();
  const signal = AbortSignal.timeout(PATIENCE_MS);
  try {
    for (;;) {
      try {
        await client.environments.execs.kill(id, execId, { signal });
        return;
      } catch (error) {
        if (!isNotFound(error)) return cli.io.say(`it may still run: fuse environment kill ${id} ${execId}`);
        if (performance.now() - startedMs > UNKNOWN_PATIENCE_MS) return;
      }
      await delay(AGAIN_MS);
    }
  } finally {
    clearTimeout(timer);
  }
}
