/**
 * What a test may leave behind, counted before and after it:
 *   const before = await resourceSnapshot({ directories: [dataDir] });  …  await expectNoLeaks(before);
 * Seen always: this process's descendants and open descriptors (not with `ownDescriptors: false`: a test that is a client has kept-alive connections, which come and go). Seen for the watched directories: their entries, mounts in them, loop
 * devices over their files, users that VMMs have for them, and every process whose command line names them (a VMM is a session of its own, so no descendant).
 * `wholeMachine` adds all mounts, loop devices, network links and named network namespaces: for suites that have the machine to themselves.
 */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { descendantsOf, runningProcesses } from './processes.ts';

/** The host agent's (confinement/). */
const VMM_USERS = '/run/fuse/vmm-uids';

export interface WatchedResources {
  directories?: readonly string[];
  wholeMachine?: boolean;
  ownDescriptors?: boolean;
}

export interface ResourceSnapshot {
  watched: WatchedResources;
  /** One line a resource. */
  resources: ReadonlySet<string>;
}

export async function resourceSnapshot(watched: WatchedResources = {}): Promise<ResourceSnapshot> {
  const { directories = [], wholeMachine = false, ownDescriptors = true } = watched;
  const concerns = (path: string) =>
    wholeMachine || directories.some((directory) => path === directory || path.startsWith(`${directory}/`));
  const lists = await Promise.all([
    processes(directories),
    ownDescriptors ? descriptors() : [],
    mounts(concerns),
    loopDevices(concerns),
    cells(concerns),
    ...directories.map(entries),
    ...(wholeMachine ? [names('network link', '/sys/class/net'), names('network namespace', '/run/netns')] : []),
  ]);
  return { watched, resources: new Set(lists.flat()) };
}

/** Throws, naming each one, when something that was not there before is still there after `graceMs` (ends are asynchronous). */
export async function expectNoLeaks(before: ResourceSnapshot, graceMs = 5_000): Promise<void> {
  const deadline = performance.now() + graceMs;
  for (;;) {
    const after = await resourceSnapshot(before.watched);
    const leaked = [...after.resources].filter((resource) => !before.resources.has(resource));
    if (leaked.length === 0) return;
    if (performance.now() >= deadline) throw new Error(`left behind:\n${leaked.map((each) => `  ${each}`).join('\n')}`);
    await delay(25);
  }
}

async function processes(directories: readonly string[]): Promise<string[]> {
  const all = await runningProcesses();
  const ours = new Set(descendantsOf(process.pid, all));
  for (const each of all) {
    if (each.pid !== process.pid && directories.some((directory) => each.command.includes(directory))) ours.add(each);
  }
  return [...ours].map((each) => `process ${each.pid} (started ${each.startTicks}): ${each.command.slice(0, 300)}`);
}

async function descriptors(): Promise<string[]> {
  const numbers = await readdir('/proc/self/fd');
  const targets = await Promise.all(
    numbers.map(async (number) => {
      const target = await readlink(`/proc/self/fd/${number}`).catch(() => undefined); // closed meanwhile
      return target === undefined || target.startsWith('/proc/') ? undefined : `descriptor ${number} -> ${target}`;
    }),
  );
  return targets.filter((each) => each !== undefined);
}

async function mounts(concerns: (path: string) => boolean): Promise<string[]> {
  const lines = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').filter((line) => line !== '');
  const points = lines.map((line) => line.split(' ')[4] ?? '');
  return points.filter(concerns).map((point) => `mount ${point}`);
}

async function loopDevices(concerns: (path: string) => boolean): Promise<string[]> {
  const devices = (await readdir('/sys/block').catch(() => [])).filter((name) => name.startsWith('loop'));
  const backed = await Promise.all(
    devices.map(async (device) => {
      const file = await readFile(`/sys/block/${device}/loop/backing_file`, 'utf8').catch(() => ''); // not in use
      return { device, file: file.trim() };
    }),
  );
  return backed.filter(({ file }) => file !== '' && concerns(file)).map(({ device, file }) => `${device} over ${file}`);
}

/** Users and control groups of VMMs: a link for each, named for the user, says for which boot and directory. */
async function cells(concerns: (path: string) => boolean): Promise<string[]> {
  const uids = await readdir(VMM_USERS).catch(() => []);
  const owners = await Promise.all(uids.map((uid) => readlink(join(VMM_USERS, uid)).catch(() => ''))); // gone meanwhile
  const cells = uids.map((uid, index) => ({ uid, directory: owners[index]?.split(' ').slice(1).join(' ') ?? '' }));
  return cells.filter((each) => concerns(each.directory)).map((each) => `VMM user ${each.uid} of ${each.directory}`);
}

async function entries(directory: string): Promise<string[]> {
  const found = await readdir(directory, { recursive: true }).catch(() => []); // not there: nothing in it
  return found.map((entry) => `entry ${join(directory, entry)}`);
}

async function names(kind: string, directory: string): Promise<string[]> {
  const found = await readdir(directory).catch(() => []);
  return found.map((name) => `${kind} ${name}`);
}
