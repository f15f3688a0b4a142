/** `environment create --follow`: what the startup script writes and what becomes of the environment, as it comes. */
import { setTimeout as delay } from 'node:timers/promises';
import { STARTUP_EXEC_ID } from '@fuse/contract';
import { type EnvironmentInfo, type FuseClient, isNotFound, isTerminalState } from '@fuse/sdk';
import type { Cli } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { printable } from '../../output/format.ts';

const LOOK_AGAIN_MS = 300;

/** Resolves with the environment running; rejects when it was not to be. The script's output goes to stderr: it is not the command's data. */
export async function followStart(
  cli: Cli,
  client: FuseClient,
  { id }: EnvironmentInfo,
  { hasScript, signal }: { hasScript: boolean; signal: AbortSignal },
): Promise<EnvironmentInfo> {
  const settled = new AbortController();
  const output = hasScript ? printOutput(cli, client, id, { settled: settled.signal, signal }) : Promise.resolve();
  output.catch(() => {}); // awaited below
  try {
    await untilRunning(client, id, signal);
  } finally {
    settled.abort();
    // All of it was written before.
    await output.catch((error: unknown) => cli.io.say(`its output was cut: ${printable(String(error))}`));
  }
  return client.environments.get(id, { signal });
}

async function untilRunning(client: FuseClient, id: string, signal: AbortSignal): Promise<void> {
  for await (const { state, error } of await client.environments.events(id, { signal })) {
    if (state === 'running') return;
    if (isTerminalState(state))
      throw new CliError(`${id}: ${state}${error === undefined ? '' : `: ${printable(error)}`}`, {
        hint: `fuse environment logs ${id} ${STARTUP_EXEC_ID} shows what its startup script wrote.`,
      });
  }
  throw new CliError(`${id}: its events ended before it ran`);
}

/** Its script may not be started yet. */
async function printOutput(
  cli: Cli,
  client: FuseClient,
  id: string,
  { settled, signal }: { settled: AbortSignal; signal: AbortSignal },
): Promise<void> {
  for (;;) {
    try {
      for await (const item of client.environments.execs.log(id, STARTUP_EXEC_ID, { follow: true, signal }))
        if (item.type === 'stdout' || item.type === 'stderr') await cli.io.err(item.data);
      return;
    } catch (error) {
      if (!isNotFound(error) || settled.aborted) throw error;
    }
    await delay(LOOK_AGAIN_MS, undefined, { signal });
  }
}
