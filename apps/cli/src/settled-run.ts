/** Looking at a run once more, for a short while, when its end is known but not all of its consequences. */

import { setTimeout as delay } from 'node:timers/promises';
import type { FuseClient, RunResult } from '@fuse/sdk';

const DESTROY_PATIENCE_MS = 3_000;
const CANCEL_PATIENCE_MS = 15_000;
const POLL_MS = 50;

/** With the time that destroying its VM took, which is known only after its end; without, if that takes long. */
export async function withDestroyTime(client: FuseClient, result: RunResult): Promise<RunResult> {
  const signal = AbortSignal.timeout(DESTROY_PATIENCE_MS);
  let latest = result;
  while (latest.timings.destroy_ms === undefined && latest.run.environment_id !== undefined && !signal.aborted) {
    await delay(POLL_MS);
    latest = await client.runs.wait(result.id, { signal }).catch(() => latest);
  }
  return latest;
}

/** How a run ended that was asked to stop; undefined when it has not within a while. */
export function cancelledRun(client: FuseClient, id: string): Promise<RunResult | undefined> {
  return client.runs.wait(id, { signal: AbortSignal.timeout(CANCEL_PATIENCE_MS) }).catch(() => undefined);
}
