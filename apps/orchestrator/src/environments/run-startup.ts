/**
 * What is done in a VM that is up before its environment counts as running: files, then the startup script, then the healthcheck. Every step may be repeated
 * by another process: the script is an exec with a fixed id, started once, and files are not put again once it was started, since it may have changed them.
 */
import { AppError, FrameParser, invalidField, STARTUP_EXEC_ID } from '@fuse/contract';
import type { GuestExecExit, HostExec, StartExec } from '@fuse/host-protocol';
import type { EnvironmentRow } from '../db/schema.ts';
import { type HostClient, MAX_WAIT_MS } from '../hosts/host-client.ts';
import { persistently } from '../hosts/host-retries.ts';
import { OutputTail } from '../secrets/redacted-output.ts';
import { redacting, secretValues } from '../secrets/redaction.ts';
import type { EnvironmentContext } from './environment-context.ts';
import { openEnv, openStartup, type PlannedStartup } from './environment-secrets.ts';
import { putToken } from './environment-token.ts';
import { confidedFiles, type GuestFile, ownFiles } from './own-files.ts';
import type { StartSteps } from './start-steps.ts';

const MAX_LOG_BYTES = 8 * 1_048_576;
/** On top of the script's own timeout, which the guest keeps: then the guest does not answer as it should. */
const GRACE_MS = 60_000;
/** The end of its output that goes into the error; all of it is the exec's. */
const SHOWN_OUTPUT_BYTES = 4_096;
/** Read for that, and as much as the longest secret besides: no frame of a guest's is longer. */
const TAIL_BYTES = 131_072;

export const STARTUP_TIMED_OUT = 'startup_timed_out';

interface Furnishing {
  context: EnvironmentContext;
  client: HostClient;
  row: EnvironmentRow;
  signal: AbortSignal | undefined;
  /** Its variables and secrets: no error says them. */
  secrets: Record<string, string>;
}

export async function runStartup(
  context: EnvironmentContext,
  row: EnvironmentRow,
  steps: StartSteps,
  signal: AbortSignal | undefined,
): Promise<void> {
  const startup = row.startup === null ? null : openStartup(context.sealer, row.startup, row.uid);
  const secrets = confidences(openEnv(context.sealer, row), startup?.secrets ?? {});
  await redacting(secrets, async () => {
    const client = await context.hosts.client(row.host_id);
    await furnish({ context, client, row, signal, secrets }, startup, steps);
  });
}

/** By names that no two of them share. */
function confidences(env: Record<string, string>, secrets: Record<string, string>): Record<string, string> {
  const variables = Object.entries(env).map(([name, value]) => [`env.${name}`, value] as const);
  return Object.fromEntries([
    ...variables,
    ...Object.entries(secrets).map(([name, value]) => [`secrets.${name}`, value]),
  ]);
}

async function furnish(furnishing: Furnishing, startup: PlannedStartup | null, steps: StartSteps): Promise<void> {
  const { context, row, signal } = furnishing;
  const { healthcheck } = row;
  const begun = startup?.script === undefined ? undefined : await findScript(furnishing);
  await steps.take('files', async () => {
    await putToken(context, row, signal, begun === undefined ? ownFiles(row) : []);
    if (startup !== null && begun === undefined) await putFiles(furnishing, startup);
  });
  const script = startup?.script;
  if (startup !== null && script !== undefined) {
    await steps.tell();
    await steps.take('script', () => runScript(furnishing, startup, script));
  }
  if (healthcheck !== null)
    await ask(furnishing, (client) => client.putHealthcheck(row.vm_id, healthcheck, furnishing.signal));
}

const ask = <T>({ context, client, signal }: Furnishing, call: (client: HostClient) => Promise<T>): Promise<T> =>
  persistently(context.hostRetryMs, () => call(client), signal);

async function findScript(furnishing: Furnishing): Promise<HostExec | undefined> {
  const { row, signal } = furnishing;
  try {
    return await ask(furnishing, (client) => client.exec(row.vm_id, STARTUP_EXEC_ID, 0, signal));
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return undefined;
    throw error;
  }
}

/** What the guest cannot write there is the client's mistake. */
const CLIENT_CODES: ReadonlySet<string> = new Set(['invalid_argument', 'not_found', 'conflict']);

async function putFiles(furnishing: Furnishing, startup: PlannedStartup): Promise<void> {
  const given = Object.entries(startup.files ?? {}).map(([path, content_base64]) => ({ path, content_base64 }));
  await putAs('files', furnishing, given);
  await putAs('secrets', furnishing, confidedFiles(startup));
}

async function putAs(field: string, furnishing: Furnishing, files: GuestFile[]): Promise<void> {
  const { row, signal } = furnishing;
  if (files.length === 0) return;
  try {
    await ask(furnishing, (client) => client.putFiles(row.vm_id, { files }, signal));
  } catch (error) {
    if (!(error instanceof AppError) || !CLIENT_CODES.has(error.code)) throw error;
    throw invalidField(field, error.message);
  }
}

async function runScript(furnishing: Furnishing, startup: PlannedStartup, script: string): Promise<void> {
  const { row, signal } = furnishing;
  const command: StartExec = {
    argv: ['sh', '-lc', script],
    timeout_ms: startup.timeout_seconds * 1_000,
    max_log_bytes: MAX_LOG_BYTES,
    keep: 'ends',
  };
  await ask(furnishing, (client) => client.startExec(row.vm_id, STARTUP_EXEC_ID, command, signal));
  const exit = await waitForEnd(furnishing, startup.timeout_seconds * 1_000 + GRACE_MS);
  if (exit.exit_code === 0 && !exit.timed_out) return;
  const details = {
    field: 'startup_script',
    exec_id: STARTUP_EXEC_ID,
    exit_code: String(exit.exit_code),
    output: await endOfOutput(furnishing, exit.signal !== undefined || exit.timed_out),
  };
  const hint = `All of its output: GET /v1/environments/${row.id}/execs/${STARTUP_EXEC_ID}/result`;
  if (exit.timed_out) {
    const message = `startup script did not complete in time after ${startup.timeout_seconds}s: it was killed with all that it started`;
    throw new AppError('invalid_argument', message, { details: { ...details, reason: STARTUP_TIMED_OUT }, hint });
  }
  const why = exit.oom_killed ? ' (out of memory)' : exit.signal === undefined ? '' : ` (${exit.signal})`;
  throw new AppError('invalid_argument', `startup script: exec exit ${exit.exit_code}${why}`, { details, hint });
}

async function waitForEnd(furnishing: Furnishing, withinMs: number): Promise<GuestExecExit> {
  const { row, signal } = furnishing;
  const giveUpAt = performance.now() + withinMs;
  while (performance.now() < giveUpAt) {
    const { state, exit, error } = await ask(furnishing, (client) =>
      client.exec(row.vm_id, STARTUP_EXEC_ID, MAX_WAIT_MS, signal),
    );
    signal?.throwIfAborted();
    if (state === 'lost') throw new AppError('vm_lost', `its startup script was lost: ${error ?? 'no reason known'}`);
    if (exit !== undefined) return exit;
  }
  throw new AppError('unavailable', 'how its startup script ended cannot be learned from its VM');
}

async function endOfOutput({ client, row, context, signal, secrets }: Furnishing, isBroken: boolean): Promise<string> {
  try {
    const longest = secretValues(secrets)[0] ?? '';
    const from = { tail: TAIL_BYTES + Buffer.byteLength(longest) };
    const { offset, body } = await client.execs.log(row.vm_id, STARTUP_EXEC_ID, { from, follow: false, signal });
    const parser = new FrameParser();
    const output = new OutputTail(offset > 0);
    for await (const chunk of body) for (const { type, payload } of parser.push(chunk)) output.add(type, payload);
    return output.text(secrets, { maxBytes: SHOWN_OUTPUT_BYTES, isBroken });
  } catch (error) {
    context.log.warn({ err: error, environment: row.id }, 'output of a startup script not read');
    return '';
  }
}
