import { mkdir, realpath } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import type { FuseClient } from '../client.ts';
import { FuseError } from '../errors.ts';
import { type Copied, CopyCount, type CopyOptions } from './copy-options.ts';
import { SafeTarget } from './safe-target.ts';

/**
 * A file or directory of the guest becomes `localPath`, with flat memory. Nothing that the guest chose is written outside of it, and no symbolic link below it is
 * followed; files appear whole or not at all. Modes are kept but for setuid, setgid and sticky; owners are not. Links that lead out of the directory and
 * special files are told in `skipped`.
 */
export async function copyOut(
  client: FuseClient,
  environmentId: string,
  remotePath: string,
  localPath: string,
  options: CopyOptions = {},
): Promise<Copied> {
  const { signal } = options;
  const call = signal === undefined ? {} : { signal };
  const files = client.environments.files(environmentId);
  const count = new CopyCount(options);
  const { type } = await files.stat(remotePath, call);
  if (type === 'directory') {
    const { extractTar } = await import('./extract-tar.ts');
    const isNew = (await mkdir(localPath, { recursive: true })) !== undefined;
    const archive = await files.tar(remotePath, call);
    await extractTar(archive, await realpath(localPath), { count, isNew, signal });
    return count.at(localPath);
  }
  if (type !== 'file') throw new FuseError(`${remotePath} is neither a file nor a directory`);
  const path = resolve(localPath);
  const { body, mode, modifiedAt } = await files.open(remotePath, call);
  const bits = Number.parseInt(mode ?? '644', 8);
  await new SafeTarget(await realpath(dirname(path))).makeFile(
    [basename(path)],
    { mode: bits, modifiedAt },
    async (file) => {
      for await (const chunk of body) {
        await file.writeFile(chunk);
        count.add('', chunk.length);
      }
    },
  );
  count.files = 1;
  return count.at(path);
}
