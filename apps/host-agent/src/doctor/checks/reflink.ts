import { constants, copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Check, ok, warn } from '../finding.ts';
import { nearestExisting } from './disk.ts';

/** Whether a VM's disk can be copied in no time. Tried, not looked up: file systems of one name differ in it. */
export const reflinkCheck: Check = {
  name: 'reflink',
  async run({ home }) {
    const directory = await mkdtemp(join(await nearestExisting(home), '.fuse-doctor-'));
    try {
      await writeFile(join(directory, 'a'), 'x'.repeat(4096));
      await copyFile(join(directory, 'a'), join(directory, 'b'), constants.COPYFILE_FICLONE_FORCE);
      return ok(`the file system of ${home} copies by reference`);
    } catch {
      return warn(
        `the file system of ${home} has no reflink: snapshots and forks copy what was written`,
        'optional: put FUSE_HOME on XFS or Btrfs',
      );
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};
