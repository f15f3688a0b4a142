/**
 * What is left of data directories that were removed while something of them was running (a host agent and its VMs that were cut off, and whose directory was deleted):
 * VMMs, gateways, their control groups, network namespaces. No host agent of such a directory will ever come; so the next one of the machine removes it. Users and control
 * groups of confined VMMs are swept by whoever opens those (confinement/).
 */
import { readdir, readFile, readlink, rm } from 'node:fs/promises';
import { basename } from 'node:path';
import { type Logger, sleep } from '@fuse/runtime';
import type { ConfinementMode } from '../confinement/confinement.ts';
import { gatewayGroupName, gatewayGroupPids, removeGatewayGroup } from '../network/gateway-group.ts';
import { pathDigest, prefixOf, removeSlot, slotNames } from '../network/slot.ts';
import { tryLock } from '../templates/process-lock.ts';
import { worksInDeletedDirectory } from '../vmm/deleted-directory.ts';
import { type DataDirectory, goneDataDirectories } from './data-directories.ts';

/** What a host agent starts in or for its data directory. */
const PROGRAMS: ReadonlySet<string> = new Set(['qemu-system-x86_64', 'firecracker', 'fuse-gateway']);
const DELETED = ' (deleted)';
const END_POLL_MS = 10;
const END_DEADLINE_MS = 5_000;

export interface LeftoverOptions {
  confinement: ConfinementMode;
  log: Logger;
  /** Where data directories are announced; the machine's when absent. */
  announcedIn?: string;
}

/** A failure is told to the log: the next host agent tries again. */
export async function sweepLeftovers({ confinement, log, announcedIn }: LeftoverOptions): Promise<void> {
  const held = await tryLock('fuse leftovers');
  if (held === undefined) return; // somebody is at it
  try {
    for (const gone of await goneDataDirectories(announcedIn)) {
      try {
        await sweepOne(gone, confinement, log);
      } catch (error) {
        log.warn({ err: error, directory: gone.path }, 'leftovers of a data directory that is gone not removed');
      }
    }
  } finally {
    await held[Symbol.asyncDispose]();
  }
}

async function sweepOne({ path, file }: DataDirectory, confinement: ConfinementMode, log: Logger): Promise<void> {
  const prefix = prefixOf(path);
  const group = { groupName: gatewayGroupName(prefix), confinement, softMiB: 0, log };
  const pids = [...new Set([...(await processesOf(path)), ...gatewayGroupPids(group)])];
  // A directory that was renamed, or is not mounted at the moment, may come back, and what runs in it is somebody's.
  if (!pids.every(worksInDeletedDirectory)) return;
  for (const pid of pids) killIfThere(pid);
  for (let waitedMs = 0; (await processesOf(path)).length > 0; waitedMs += END_POLL_MS) {
    if (waitedMs >= END_DEADLINE_MS) throw new Error('its processes do not end');
    await sleep(END_POLL_MS);
  }
  await removeGatewayGroup(group);
  const slots = await slotNames(prefix);
  for (const slot of slots) await removeSlot(slot);
  await rm(file, { force: true });
  if (pids.length + slots.length > 0)
    log.info({ directory: path, digest: pathDigest(path), pids, slots }, 'leftovers of a data directory that is gone');
}

/** VMMs that say so in their name, and what works in a directory that was deleted there. */
async function processesOf(path: string): Promise<number[]> {
  const named = `guest=${path.replaceAll(',', ',,')}/`;
  const pids = (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry)).map(Number);
  const ours = await Promise.all(
    pids.map(async (pid) => {
      try {
        const program = basename((await readlink(`/proc/${pid}/exe`)).replace(DELETED, ''));
        if (!PROGRAMS.has(program)) return false;
        const cwd = await readlink(`/proc/${pid}/cwd`);
        if (cwd.startsWith(`${path}/`) && cwd.endsWith(DELETED)) return true;
        const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
        return argv.some((each) => each.startsWith(named));
      } catch {
        return false; // it is gone
      }
    }),
  );
  return pids.filter((_, index) => ours[index]);
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
