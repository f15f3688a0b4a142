import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { homePath } from '../setup/paths.mjs';

/** With both of these the command line talks to the local stack, whatever the user's shell and contexts say: no contexts, no FUSE_URL. */
export const ONLY_LOCAL_STACK_OPTIONS = ['--config', '/dev/null'];
export const onlyLocalStackVariables = { FUSE_URL: undefined, FUSE_TOKEN: undefined, FUSE_TENANT: undefined };

/** Whether `fuse local up` has a stack running here: `local.json` names its process by number, boot and start time. */
export async function localStackRuns(home = homePath) {
  try {
    const { pid, start_time } = JSON.parse(await readFile(join(home, 'local.json'), 'utf8'));
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
    // Field 22, counted behind the name, which may hold anything.
    return `${boot} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}` === start_time;
  } catch {
    return false;
  }
}
