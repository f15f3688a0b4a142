/**
 * Where an output lies below the output directory. Its name was chosen by the guest: whatever it holds, the result is a relative path of
 * plain names, without "..", control characters or names that are too long for a file system.
 */
const MAX_NAME_BYTES = 200;

export function outputPath(guestPath: string): string {
  const names = guestPath
    .split('/')
    .filter((name) => name !== '' && name !== '.')
    .map(plainName);
  return names.length === 0 ? '_' : names.join('/');
}

function plainName(name: string): string {
  const clean = name.replace(/[\p{Cc}\p{Cs}]/gu, '_');
  if (/^\.+$/.test(clean)) return '_'.repeat(clean.length);
  let cut = clean;
  while (Buffer.byteLength(cut) > MAX_NAME_BYTES) cut = [...cut].slice(0, -1).join('');
  return cut;
}

/** One path for each output, all different, none of them a directory of another. */
export function outputPaths(guestPaths: readonly string[]): string[] {
  const files = new Set<string>();
  const directories = new Set<string>();
  return guestPaths.map((guestPath) => {
    const wanted = outputPath(guestPath);
    for (let turn = 1; ; turn++) {
      const path = turn === 1 ? wanted : withSuffix(wanted, turn);
      const parents = parentsOf(path);
      if (files.has(path) || directories.has(path) || parents.some((parent) => files.has(parent))) continue;
      files.add(path);
      for (const parent of parents) directories.add(parent);
      return path;
    }
  });
}

/** On the first name, so that it also gets out of the way of a file of that name. */
const withSuffix = (path: string, turn: number): string => path.replace(/^[^/]+/, (name) => `${name}~${turn}`);

function parentsOf(path: string): string[] {
  const parts = path.split('/');
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'));
}
