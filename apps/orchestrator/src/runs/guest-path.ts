/** Where a client's file goes in the guest: clean, absolute, and never a place that holds no files. */
import { GuestPath, invalidField, RUN_WORKSPACE } from '@fuse/contract';

const PSEUDO_FILE_SYSTEMS = ['/proc', '/sys', '/dev'];
/** Program files of runs given as `code`. Outside the workspace, so that no output glob catches them. */
export const CODE_DIRECTORY = '/tmp/fuse';

export const isBelow = (path: string, directory: string): boolean =>
  path === directory || path.startsWith(`${directory}/`);

export const onPseudoFileSystem = (path: string): boolean => PSEUDO_FILE_SYSTEMS.some((root) => isBelow(path, root));

/** Relative paths are the workspace's. "." and empty parts are dropped, ".." is refused rather than resolved. */
export function resolveInputPath(path: string, field: string): string {
  const parts = path.split('/');
  if (parts.includes('..')) throw invalidField(field, 'must not hold a ".." part');
  if (path.endsWith('/')) throw invalidField(field, 'names a directory; name the file');
  const clean = parts.filter((part) => part !== '' && part !== '.').join('/');
  const resolved = path.startsWith('/') ? `/${clean}` : `${RUN_WORKSPACE}/${clean}`;
  const parsed = GuestPath.safeParse(resolved);
  if (!parsed.success) throw invalidField(field, parsed.error.issues[0]?.message ?? 'is not a path');
  if (clean === '' || resolved === RUN_WORKSPACE) throw invalidField(field, 'names a directory; name the file');
  if (onPseudoFileSystem(resolved)) throw invalidField(field, 'lies on /proc, /sys or /dev, which hold no files');
  if (isBelow(resolved, CODE_DIRECTORY)) throw invalidField(field, `${CODE_DIRECTORY} is reserved`);
  return resolved;
}

/** Refuses two files of one path, and a file that another one needs as its directory. `files` in request order. */
export function refuseCollisions(files: readonly { path: string; field: string }[]): void {
  const fieldOf = new Map<string, string>();
  for (const { path, field } of files) {
    const other = fieldOf.get(path);
    if (other !== undefined) throw invalidField(field, `is the same file as ${other}`);
    fieldOf.set(path, field);
  }
  for (const { path, field } of files) {
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) {
      const parent = fieldOf.get(path.slice(0, at));
      if (parent !== undefined) throw invalidField(field, `lies below ${parent}, which is a file`);
    }
  }
}
