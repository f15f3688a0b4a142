/**
 * What a confined VMM sees as `/`: its program and modules with the libraries that they are linked with, its firmware, a few devices, and empty files and directories where its VM's
 * own are put. Nothing else of the host. `<directory>/<digest>` is made once for each state of those files, aside and renamed, and never changed.
 */
import { createHash, randomBytes } from 'node:crypto';
import { copyFile, link, mkdir, readdir, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AppError } from '@fuse/contract';
import { runProgram } from '../vmm/children.ts';
import { stderrOf } from '../vmm/sparse-copy.ts';

const ROOT_FORMAT = 1;
const SYSTEM_PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

export interface DeviceNode {
  path: string;
  major: number;
  minor: number;
}

export const plainDevices: readonly DeviceNode[] = [
  { path: '/dev/null', major: 1, minor: 3 },
  { path: '/dev/zero', major: 1, minor: 5 },
  { path: '/dev/random', major: 1, minor: 8 },
  { path: '/dev/urandom', major: 1, minor: 9 },
];

export interface VmmRootContents {
  /** Programs and modules; what they are linked with comes along. */
  programs: readonly string[];
  files: readonly string[];
  devices: readonly DeviceNode[];
  /** Where a VM's own files and directories are put. */
  places: { files: readonly string[]; directories: readonly string[] };
}

/** Its path. */
export async function prepareVmmRoot(directory: string, contents: VmmRootContents): Promise<string> {
  const files = [...contents.programs, ...(await librariesOf(contents.programs)), ...contents.files];
  const digest = await digestOf(files, contents);
  const path = join(directory, digest);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  if (
    await stat(path).then(
      () => true,
      () => false,
    )
  )
    return path;
  const making = join(directory, `.making-${randomBytes(6).toString('hex')}`);
  try {
    await makeRoot(making, files, contents);
    await rename(making, path);
  } catch (error) {
    await rm(making, { recursive: true, force: true });
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EEXIST' && code !== 'ENOTEMPTY') throw error; // otherwise another process was first
  }
  return path;
}

/** Roots of programs that are not there any more, and what makers left. A VMM that runs has all that it needs of its own in memory. */
export async function removeOtherVmmRoots(directory: string, keep: string): Promise<void> {
  for (const name of await readdir(directory))
    if (join(directory, name) !== keep && !name.startsWith('.making-'))
      await rm(join(directory, name), { recursive: true, force: true });
}

/** As the dynamic loader finds them; the loader itself is among them. */
export function parseLdd(output: string): string[] {
  const missing = /^\s*(\S+) => not found$/m.exec(output)?.[1];
  if (missing !== undefined) throw new AppError('unavailable', `the library ${missing} is not installed`);
  const found = [...output.matchAll(/^\s+(?:\S+ => )?(\/\S+) \(0x[0-9a-f]+\)$/gm)].map(([, path = '']) => path);
  return [...new Set(found)].sort();
}

async function librariesOf(programs: readonly string[]): Promise<string[]> {
  try {
    return parseLdd(await runProgram('ldd', programs, { path: SYSTEM_PATH }));
  } catch (cause) {
    if (cause instanceof AppError) throw cause;
    throw new AppError('unavailable', `cannot find the libraries of ${programs[0]}: ${stderrOf(cause)}`, { cause });
  }
}

async function digestOf(files: readonly string[], contents: VmmRootContents): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify([ROOT_FORMAT, contents]));
  for (const path of files) {
    const { ino, size, mtimeNs } = await stat(path, { bigint: true });
    hash.update(`${path} ${ino} ${size} ${mtimeNs}\n`);
  }
  return hash.digest('hex').slice(0, 32);
}

async function makeRoot(root: string, files: readonly string[], contents: VmmRootContents): Promise<void> {
  const { directories, files: places } = contents.places;
  for (const path of [
    ...directories,
    ...[...files, ...places, ...contents.devices.map((each) => each.path)].map(dirname),
  ])
    await mkdir(join(root, path), { recursive: true, mode: 0o755 });
  for (const path of files) await sameFile(await realpath(path), join(root, path));
  for (const path of places) await writeFile(join(root, path), '', { mode: 0o444 });
  for (const { path, major, minor } of contents.devices) {
    const args = ['-m', '666', join(root, path), 'c', String(major), String(minor)];
    await runProgram('mknod', args, { path: SYSTEM_PATH });
  }
}

/** Another name of it, so that its pages are shared and an upgrade, which puts a new file in its place, leaves it alone; elsewhere a copy. */
async function sameFile(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EXDEV' && code !== 'EPERM') throw error;
    await copyFile(from, to);
  }
}
