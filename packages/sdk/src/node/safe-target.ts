/**
 * A directory of this machine that strangers' names are written below. Every part of the way is looked at before it is used: a symbolic link on it, of
 * whoever's making, is never followed. Files appear whole under their names, by rename, which replaces a link instead of writing through it.
 */
import { randomUUID } from 'node:crypto';
import { chmod, type FileHandle, link, lstat, mkdir, open, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { FuseError } from '../errors.ts';

/** Never setuid, setgid or sticky: who may run it as whom is not a stranger's to say. */
const MODE_BITS = 0o777;

export class UnsafeArchiveError extends FuseError {
  override readonly name = 'UnsafeArchiveError';
  /** The entry's name, as it came. */
  readonly entry: string;

  constructor(entry: string, problem: string) {
    super(`refused to write ${JSON.stringify(entry)}: ${problem}`);
    this.entry = entry;
  }
}

export class SafeTarget {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  async makeDirectory(parts: readonly string[]): Promise<void> {
    if (parts.length === 0) return;
    await this.#way(parts);
    const path = this.#path(parts);
    const there = await infoOf(path);
    if (there?.isDirectory()) return;
    if (there !== undefined) await rm(path);
    await mkdir(path, 0o700);
  }

  /** Applied last: a directory that may not be written to is still to be filled. */
  async setDirectoryMode(parts: readonly string[], mode: number): Promise<void> {
    await this.#way(parts);
    const path = this.#path(parts);
    if (parts.length > 0 && !(await infoOf(path))?.isDirectory()) return;
    await chmod(path, mode & MODE_BITS);
  }

  /** `write` fills it; it appears under its name once that is done, or not at all. */
  async makeFile(
    parts: readonly string[],
    { mode, modifiedAt }: { mode: number; modifiedAt: Date | undefined },
    write: (file: FileHandle) => Promise<void>,
  ): Promise<void> {
    await this.#way(parts);
    await this.#replace(parts, async (partial) => {
      await using file = await open(partial, 'wx', 0o600);
      await write(file);
      await file.chmod(mode & MODE_BITS);
      if (modifiedAt !== undefined) await file.utimes(modifiedAt, modifiedAt);
    });
  }

  async makeLink(parts: readonly string[], target: string): Promise<void> {
    await this.#way(parts);
    await this.#replace(parts, (partial) => symlink(target, partial));
  }

  /** Another name of a regular file that is below the directory already. */
  async makeHardLink(parts: readonly string[], existing: readonly string[]): Promise<boolean> {
    await this.#way(existing);
    if (!(await infoOf(this.#path(existing)))?.isFile()) return false;
    await this.#way(parts);
    await this.#replace(parts, (partial) => link(this.#path(existing), partial));
    return true;
  }

  /** Makes what is missing of the directories above; a link among them is refused. */
  async #way(parts: readonly string[]): Promise<void> {
    let path = this.#root;
    for (const part of parts.slice(0, -1)) {
      path = join(path, part);
      const there = await infoOf(path);
      if (there === undefined) await mkdir(path, 0o755);
      else if (!there.isDirectory())
        throw new UnsafeArchiveError(
          parts.join('/'),
          `${path} is ${there.isSymbolicLink() ? 'a symbolic link' : 'not a directory'}`,
        );
    }
  }

  async #replace(parts: readonly string[], make: (partial: string) => Promise<void>): Promise<void> {
    const path = this.#path(parts);
    const partial = join(path, '..', `.${randomUUID().slice(0, 8)}.partial`);
    try {
      await make(partial);
      await rename(partial, path);
    } catch (error) {
      await rm(partial, { force: true });
      throw error;
    }
  }

  #path(parts: readonly string[]): string {
    return join(this.#root, ...parts);
  }
}

async function infoOf(path: string) {
  try {
    return await lstat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
