import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { homePath } from '../setup/paths.mjs';

/** Whether `fuse local up` has a stack running here: `local.json` names its process by number and start time. */
export async function localStackRuns() {
  try {
    const { pid, start_time } = JSON.parse(await readFile(join(homePath, 'local.json'), 'utf8'));
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    // Field 22, counted behind the name, which may hold anything.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] === start_time;
  } catch {
    return false;
  }
}
