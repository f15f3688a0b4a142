/** `fuse local down`: every VM destroyed, the service stopped, nothing left; whatever state it was in before. */
import { access, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Failure, say } from './failure.ts';
import { lockFile } from './file-lock.ts';
import { type Home, makeHome, type ProcessEnv } from './home.ts';
import { readLocalFile, removeLocalFile } from './local-file.ts';
import { isGoneWithin, processesIn } from './processes.ts';
import { newToken } from './token.ts';
import { operation } from './up.ts';

const STOP_MS = 90_000;
const KILL_MS = 10_000;
const LOCK_MS = 15_000;

export async function down(home: Home, env: ProcessEnv): Promise<void> {
  const known = await access(home.directory).then(
    () => true,
    () => false,
  );
  if (!known) return say('fuse is not up');
  await makeHome(home);
  await using _operation = await operation(home);
  const before = await readLocalFile(home);
  if (before?.alive === true) await stopService(before.stack);
  // Whoever starts it meanwhile must wait until we have seen that nothing is left.
  await using lock = await lockFile(home.serviceLock, LOCK_MS);
  if (lock === undefined)
    throw new Failure(
      `another process serves ${home.directory} and is not known to local.json`,
      'if it runs in a foreground, stop it there with Ctrl-C',
    );
  await removeLocalFile(home);
  const left = await vmsLeft(home);
  if (left.directories > 0 || left.processes.length > 0) {
    say(`the last local stack left ${left.directories} VMs behind; destroying them …`);
    await sweep(home, env);
    await requireNothingLeft(home);
  } else if (before === undefined) return say('fuse is not up');
  say('fuse is down; no VM is left');
}

async function stopService({ pid, start_time }: { pid: number; start_time: string }): Promise<void> {
  say('stopping: destroying VMs …');
  process.kill(pid, 'SIGINT');
  if (await isGoneWithin(pid, start_time, STOP_MS)) return;
  say(`the service (pid ${pid}) has not ended within ${STOP_MS / 1_000} s; it is killed`);
  process.kill(pid, 'SIGKILL');
  if (!(await isGoneWithin(pid, start_time, KILL_MS))) throw new Failure(`the service (pid ${pid}) cannot be killed`);
}

export interface VmsLeft {
  directories: number;
  processes: { pid: number; command: string }[];
}

export async function vmsLeft(home: Home): Promise<VmsLeft> {
  const names = await readdir(join(home.host, 'vms')).catch(() => []);
  return { directories: names.length, processes: await processesIn(home.host) };
}

async function requireNothingLeft(home: Home): Promise<void> {
  const { directories, processes } = await vmsLeft(home);
  if (directories === 0 && processes.length === 0) return;
  const pids = processes.map(({ pid }) => pid).join(', ') || 'none';
  throw new Failure(
    `not everything could be destroyed: ${directories} VM directories in ${home.host}/vms, processes ${pids}`,
    'run `fuse local down` again; if that does not help, end those processes and remove the directories',
  );
}

/** A host agent for as long as that takes: only it knows all that a VM consists of. */
async function sweep(home: Home, env: ProcessEnv): Promise<void> {
  const { createHostAgent, loadHostAgentConfig } = await import('@fuse/host-agent');
  const { createLogger } = await import('@fuse/runtime');
  const { FUSE_HOST_TOKEN_FILE: _, ...rest } = env;
  const config = loadHostAgentConfig({
    ...rest,
    FUSE_HOME: home.directory,
    FUSE_HOST_LISTEN: '127.0.0.1:0',
    FUSE_HOST_TOKEN: newToken(),
  });
  const { templatesAhead: _ahead, ...forTheEnd } = config;
  await using agent = await createHostAgent(forTheEnd, {
    log: createLogger({ name: 'fuse-local-down', level: 'silent' }),
  });
  await agent.destroyAllVms();
}
