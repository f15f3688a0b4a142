/**
 * Every host agent says here which data directory it uses, as `/run/fuse/data-directories/<digest of its path>`: what a directory's processes and namespaces are named
 * after tells nothing once the directory is gone. Like all that it names, this lasts until the machine's next boot.
 */
import { mkdir, readdir, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { pathDigest } from '../network/slot.ts';
import { describeProcess } from '../vms/data-lock.ts';

export const DATA_DIRECTORIES = '/run/fuse/data-directories';
const NAME = /^[0-9a-f]{8}$/;

const DataDirectory = z.object({
  path: z.string().startsWith('/'),
  /** The host agent that uses it, or was the last to. */
  holder: z.object({ pid: z.number().int().positive(), description: z.string() }),
});
export type DataDirectory = z.infer<typeof DataDirectory> & { file: string };

/** Disposed of by a host agent that leaves no VM behind. */
export async function announceDataDirectory(
  dataDirectory: string,
  directory: string = DATA_DIRECTORIES,
): Promise<AsyncDisposable> {
  const path = await realpath(dataDirectory);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const file = join(directory, pathDigest(path));
  const { pid } = process;
  const record: z.infer<typeof DataDirectory> = { path, holder: { pid, description: describeProcess(pid) ?? '' } };
  await writeFile(`${file}.${pid}`, JSON.stringify(record), { mode: 0o600 });
  await rename(`${file}.${pid}`, file);
  return {
    async [Symbol.asyncDispose]() {
      const vms = await readdir(join(path, 'vms')).catch((): string[] => []);
      if (vms.length === 0) await rm(file, { force: true });
    },
  };
}

/** Those that do not exist any more, and that no host agent which still runs has announced. */
export async function goneDataDirectories(directory: string = DATA_DIRECTORIES): Promise<DataDirectory[]> {
  const names = (await readdir(directory).catch((): string[] => [])).filter((name) => NAME.test(name));
  const all = await Promise.all(names.map((name) => readAnnounced(join(directory, name))));
  const gone = await Promise.all(all.map(async (each) => each !== undefined && (await isGone(each))));
  return all.filter((each) => each !== undefined).filter((each) => gone[all.indexOf(each)]);
}

async function isGone({ path, holder }: DataDirectory): Promise<boolean> {
  if (describeProcess(holder.pid) === holder.description) return false;
  return stat(path).then(
    () => false,
    (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
  );
}

/** Undefined when it is none, or gone meanwhile. */
async function readAnnounced(file: string): Promise<DataDirectory | undefined> {
  try {
    return { ...DataDirectory.parse(JSON.parse(await readFile(file, 'utf8'))), file };
  } catch {
    return undefined;
  }
}
