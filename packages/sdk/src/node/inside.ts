/** Paths of archives: which of them stay below the directory that is copied. Pure. */

/** The parts of an entry's name; undefined when it is absolute, climbs, or is no name at all. `[]` is the directory itself. */
export function partsInside(name: string): string[] | undefined {
  if (name.startsWith('/') || name.includes('\0')) return undefined;
  const parts = name.split('/').filter((part) => part !== '' && part !== '.');
  return parts.includes('..') ? undefined : parts;
}

/** Whether a symlink at `link` (its parts) leads out, by its own text. */
export function leadsOut(link: readonly string[], target: string): boolean {
  if (target.startsWith('/') || target.includes('\0')) return true;
  let depth = link.length - 1;
  for (const part of target.split('/')) {
    if (part === '..') depth -= 1;
    else if (part !== '' && part !== '.') depth += 1;
    if (depth < 0) return true;
  }
  return false;
}
