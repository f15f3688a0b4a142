/** `fuse local up`: the service in the background, until it is ready. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, open } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type AssetDamage, findAssetDamage, loadAssets } from '@fuse/host-agent';
import { Failure, say } from './failure.ts';
import { lockFile } from './file-lock.ts';
import { type Home, makeHome, type ProcessEnv } from './home.ts';
import { hostReport, warningsOf } from './host-report.ts';
import { type LocalStack, readLocalFile, runningStack } from './local-file.ts';
import { boundLog, logSize, reasonInLog } from './log-file.ts';
import { portFrom, requireFreePort } from './port.ts';

/** A first start makes the database; on a busy machine that takes its time. */
const READY_DEADLINE_MS = 180_000;
const POLL_MS = 100;
const STILL_WAITING_MS = 5_000;
const STOP_MS = 15_000;

export async function up(home: Home, env: ProcessEnv): Promise<void> {
  await makeHome(home);
  await requireAssets(home);
  await using _lock = await operation(home);
  const before = await readLocalFile(home);
  if (before?.alive === true) {
    await becomeReady(home, before.stack.pid, () => undefined);
    return say(`fuse is up already at ${before.stack.url} (pid ${before.stack.pid})`);
  }
  if (before !== undefined)
    say(`the last local stack (pid ${before.stack.pid}) ended without being stopped; VMs that it left are taken over`);
  await requireFreePort(portFrom(env));
  await boundLog(home.log);
  const startedAt = performance.now();
  const fromByte = await logSize(home.log);
  const interrupted = new AbortController();
  process.once('SIGINT', () => interrupted.abort());
  say(`starting; log: ${home.log}`);
  const child = await spawnService(home, env);
  const ended = () => (interrupted.signal.aborted ? 'it was interrupted' : exitOf(child));
  const stack = await becomeReady(home, child.pid, ended).catch(async (error: unknown) => {
    await stop(child);
    if (interrupted.signal.aborted) throw new Failure('interrupted: the local stack was stopped again');
    const { message, hint } = await reasonInLog(home.log, fromByte);
    const look = `see ${home.log}, or run fuse doctor`;
    throw new Failure(
      `the local stack did not start: ${message}`,
      hint === undefined ? look : `${hint} (${look})`,
      error,
    );
  });
  child.unref();
  say(
    `fuse is up at ${stack.url} (pid ${stack.pid}), ready in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`,
  );
  const report = await hostReport(stack).catch(() => undefined);
  if (report !== undefined) for (const warning of warningsOf(report)) say(warning);
}

export async function requireAssets(home: Home): Promise<void> {
  await access(home.assetsManifest).catch((cause) => {
    throw new Failure(
      `there is no kernel and no image in ${home.directory} yet`,
      'run `npm run setup` in the project to build them',
      cause,
    );
  });
  // What is wrong with the manifest itself the service says, and does not start.
  const assets = await loadAssets(home.assetsManifest).catch(() => undefined);
  const damage = assets === undefined ? undefined : await findAssetDamage(assets);
  if (damage === undefined) return;
  say(`warning: ${damage.path} is ${damage.state}: VMs that need it do not start; ${repairOf(damage)} builds it again`);
}

const repairOf = ({ path, state }: AssetDamage): string =>
  state === 'missing' ? '`npm run setup`' : `\`rm ${path}\` and \`npm run setup\``;

/** One `up` or `down` at a time; the second waits for the first. */
export async function operation(home: Home): Promise<AsyncDisposable> {
  const free = await lockFile(home.operationLock);
  if (free !== undefined) return free;
  say('waiting for another `fuse local up` or `down` …');
  const lock = await lockFile(home.operationLock, READY_DEADLINE_MS);
  if (lock !== undefined) return lock;
  throw new Failure('another `fuse local up` or `down` has not ended', 'find it with: pgrep -af apps/local');
}

async function spawnService(home: Home, env: ProcessEnv): Promise<ChildProcess> {
  await using log = await open(home.log, 'a', 0o600);
  const main = fileURLToPath(new URL('./main.js', import.meta.url));
  const child = spawn(process.execPath, [main, 'serve', '--background'], {
    detached: true,
    cwd: home.directory,
    env: { ...env, FUSE_HOME: home.directory },
    stdio: ['ignore', log.fd, log.fd],
  });
  await once(child, 'spawn');
  return child;
}

const exitOf = (child: ChildProcess): string | undefined =>
  child.exitCode === null && child.signalCode === null
    ? undefined
    : `it ended with ${child.signalCode ?? `exit code ${child.exitCode}`}`;

async function becomeReady(home: Home, pid: number | undefined, ended: () => string | undefined): Promise<LocalStack> {
  const deadline = performance.now() + READY_DEADLINE_MS;
  let told = performance.now();
  let waitingFor = 'the service to listen';
  while (performance.now() < deadline) {
    const end = ended();
    if (end !== undefined) throw new Error(end);
    const stack = await runningStack(home);
    if (stack?.pid === pid && stack !== undefined) {
      const problem = await notReady(stack.url);
      if (problem === undefined) return stack;
      waitingFor = problem;
    }
    if (performance.now() - told > STILL_WAITING_MS) {
      say(`still waiting for ${waitingFor} …`);
      told = performance.now();
    }
    await delay(POLL_MS);
  }
  throw new Error(`not ready after ${READY_DEADLINE_MS / 1_000} s: waiting for ${waitingFor}`);
}

/** What `/ready` finds fault with. */
async function notReady(url: string): Promise<string | undefined> {
  try {
    const response = await fetch(new URL('/ready', url), { signal: AbortSignal.timeout(5_000) });
    if (response.ok) return undefined;
    const { checks = {} } = (await response.json()) as { checks?: Record<string, string> }; // only shown
    return Object.entries(checks)
      .filter(([, verdict]) => verdict !== 'ok')
      .map(([name, verdict]) => `${name}: ${verdict}`)
      .join('; ');
  } catch {
    return 'an answer';
  }
}

async function stop(child: ChildProcess): Promise<void> {
  if (exitOf(child) !== undefined) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await Promise.race([exited, delay(STOP_MS, undefined, { ref: false })]);
  if (exitOf(child) !== undefined) return;
  child.kill('SIGKILL');
  await exited;
}
