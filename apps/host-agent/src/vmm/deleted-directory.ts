import { statSync } from 'node:fs';

/** Whether the directory in which a process works has been deleted, or the process is gone. Not so of one that was renamed, or whose file system is mounted elsewhere by now. */
export function worksInDeletedDirectory(pid: number): boolean {
  try {
    return statSync(`/proc/${pid}/cwd`).nlink === 0;
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return true;
    throw error;
  }
}
