/** Local files as a run's input files: found, read or uploaded. */
import { constants } from 'node:fs';
import { access, readdir, readFile, stat } from 'node:fs/promises';
import { join, posix, resolve } from 'node:path';
import type { FuseClient, RunFile } from '@fuse/sdk';
import { uploadFile } from '@fuse/sdk/node';
import type { InputSpec } from '../args/input-spec.ts';
import { CliError } from '../cli-error.ts';

export interface LocalFile {
  localPath: string;
  guestPath: string;
  /** Permission bits. */
  mode: number;
  sizeBytes: number;
}

/** As many as a run takes. */
const MAX_FILES = 1_000;
/** Files up to this size travel in the request itself, as long as they fit together. */
const INLINE_FILE_BYTES = 256 * 1024;
const INLINE_TOTAL_BYTES = 4 * 1024 * 1024;
const PARALLEL_UPLOADS = 4;

/** Directories are walked; symbolic links in them are reported to `onSkipped`, not followed. */
export async function findInputs(
  specs: readonly InputSpec[],
  onSkipped: (path: string, reason: string) => void,
): Promise<LocalFile[]> {
  const found: LocalFile[] = [];
  for (const { local, guest } of specs) await walk(local, guest, true);
  return withoutCollisions(found);

  async function walk(localPath: string, guestPath: string, named: boolean): Promise<void> {
    const info = await stat(localPath).catch((cause: NodeJS.ErrnoException) => {
      throw new CliError(`cannot read ${localPath}: ${cause.code === 'ENOENT' ? 'no such file' : cause.message}`, {
        cause,
      });
    });
    if (info.isDirectory()) {
      for (const entry of await readdir(localPath, { withFileTypes: true })) {
        const below = join(localPath, entry.name);
        if (entry.isSymbolicLink()) onSkipped(below, 'a symbolic link');
        else await walk(below, posix.join(guestPath, entry.name), false);
      }
      return;
    }
    if (!info.isFile()) {
      if (named) throw new CliError(`${localPath} is neither a file nor a directory`);
      return onSkipped(localPath, 'not a regular file');
    }
    await access(localPath, constants.R_OK).catch((cause) => {
      throw new CliError(`cannot read ${localPath}: permission denied`, { cause });
    });
    found.push({ localPath, guestPath, mode: info.mode & 0o777, sizeBytes: info.size });
    if (found.length > MAX_FILES)
      throw new CliError(`more than ${MAX_FILES} input files`, {
        hint: 'pack them into an archive and unpack it in the run',
      });
  }
}

/** One file named twice, as by `--input . main.py`, is one file. */
function withoutCollisions(files: readonly LocalFile[]): LocalFile[] {
  const byGuestPath = new Map<string, LocalFile>();
  for (const file of files) {
    const other = byGuestPath.get(file.guestPath);
    if (other !== undefined && resolve(other.localPath) !== resolve(file.localPath))
      throw new CliError(`${other.localPath} and ${file.localPath} would both be ${file.guestPath} in the run`, {
        hint: 'give one of them another name: --input LOCAL:GUEST',
      });
    byGuestPath.set(file.guestPath, file);
  }
  return [...byGuestPath.values()];
}

/** Small files inline, the others uploaded first. */
export async function asRunFiles(
  client: FuseClient,
  files: readonly LocalFile[],
  { signal, onUpload }: { signal: AbortSignal; onUpload: (file: LocalFile) => void },
): Promise<RunFile[]> {
  const result: RunFile[] = [];
  const toUpload: { at: number; file: LocalFile }[] = [];
  let inlineBytes = 0;
  for (const [at, file] of files.entries()) {
    const inline = file.sizeBytes <= INLINE_FILE_BYTES && inlineBytes + file.sizeBytes <= INLINE_TOTAL_BYTES;
    if (!inline) {
      toUpload.push({ at, file });
      continue;
    }
    inlineBytes += file.sizeBytes;
    result[at] = { ...placed(file), content_base64: (await readFile(file.localPath)).toString('base64') };
  }
  const worker = async () => {
    for (let next = toUpload.shift(); next !== undefined; next = toUpload.shift()) {
      onUpload(next.file);
      const { id } = await uploadFile(client, next.file.localPath, { signal });
      result[next.at] = { ...placed(next.file), file_id: id };
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_UPLOADS }, worker));
  return result;
}

const placed = (file: LocalFile) => ({
  path: file.guestPath,
  mode: file.mode.toString(8).padStart(4, '0'),
});
