/**
 * The service process itself. SIGTERM and SIGHUP stop it and leave every VM running for the next one to take over (a restart, an
 * upgrade). SIGINT, which is Ctrl-C in the foreground and what `down` sends, destroys everything first.
 */
import { createLogger, letHeapGrow, waitForStopSignal } from '@fuse/runtime';
import { endEverything } from './end-everything.ts';
import { Failure, say } from './failure.ts';
import { lockFile } from './file-lock.ts';
import { type Home, makeHome, type ProcessEnv } from './home.ts';
import { removeLocalFile, writeLocalFile } from './local-file.ts';
import { keepLogBounded } from './log-file.ts';
import { portFrom, requireFreePort } from './port.ts';
import { startTimeOf } from './processes.ts';
import { startStack } from './stack.ts';
import { ensureToken } from './token.ts';

export async function serve(home: Home, env: ProcessEnv, { background }: { background: boolean }): Promise<void> {
  letHeapGrow();
  await makeHome(home);
  await using lock = await lockFile(home.serviceLock);
  if (lock === undefined)
    throw new Failure(`${home.directory} is served by another process already`, '`fuse local status` shows it');
  const stopped = waitForStopSignal();
  const log = createLogger({ name: 'fuse-local', level: env.FUSE_LOG_LEVEL || 'info' });
  using _bounded = background
    ? keepLogBounded(home.log, (error) => log.warn({ err: error }, 'the log could not be cut'))
    : undefined;
  const port = portFrom(env);
  await requireFreePort(port);
  const token = await ensureToken(home.token);
  await using stack = await startStack({ home, env, port, token, log }).catch((error: unknown) => {
    log.fatal({ err: error }, 'start failed');
    throw new Failure(`start failed: ${error instanceof Error ? error.message : error}`, hintOf(error), error);
  });
  await writeLocalFile(home, {
    pid: process.pid,
    start_time: (await startTimeOf(process.pid)) ?? '',
    url: stack.url,
    host_url: stack.hostUrl,
    host_token: stack.hostToken,
    ...(background ? { log: home.log } : {}),
    started_at: new Date().toISOString(),
  });
  if (!background) say(`fuse is up at ${stack.url}; Ctrl-C destroys its VMs and stops it`);
  const signal = await stopped;
  log.info({ signal }, 'stopping');
  if (signal === 'SIGINT') {
    if (!background) say('stopping: destroying VMs …');
    await endEverything(stack.url, token, log);
    await stack.stopAccepting();
    await stack.destroyAllVms();
  }
  await removeLocalFile(home);
}

const hintOf = (error: unknown): string | undefined =>
  error instanceof Error && 'hint' in error && typeof error.hint === 'string' ? error.hint : undefined;
