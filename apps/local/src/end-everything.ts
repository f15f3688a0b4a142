/** Ends what the stack runs as its user would: through the API, so that runs and environments say truthfully how they ended. */
import { isTerminalRunState } from '@fuse/contract';
import type { Logger } from '@fuse/runtime';
import { FuseClient, isConflict, isNotFound } from '@fuse/sdk';

const DEADLINE_MS = 30_000;

/** As far as it gets in time; the VMs that are left are destroyed by the host afterwards. */
export async function endEverything(url: string, token: string, log: Logger): Promise<void> {
  const client = new FuseClient({ baseUrl: url, token });
  const signal = AbortSignal.timeout(DEADLINE_MS);
  try {
    const runs = (await client.runs.list({ signal })).filter((run) => !isTerminalRunState(run.state));
    await Promise.all(runs.map((run) => tolerate(isConflict, client.runs.cancel(run.id, { signal }))));
    await Promise.all(runs.map((run) => client.runs.wait(run.id, { signal })));
    const environments = await client.environments.list({ signal });
    await Promise.all(environments.map(({ id }) => tolerate(isNotFound, client.environments.destroy(id, { signal }))));
    log.info({ runs: runs.length, environments: environments.length }, 'runs cancelled, environments destroyed');
  } catch (error) {
    log.warn({ err: error }, 'not everything could be ended through the API');
  }
}

/** It may have ended by itself meanwhile. */
async function tolerate(expected: (error: unknown) => boolean, work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!expected(error)) throw error;
  }
}
