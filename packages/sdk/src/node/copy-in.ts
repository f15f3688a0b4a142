import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { FuseClient } from '../client.ts';
import { FuseError } from '../errors.ts';
import type { Ownership } from '../remote-files.ts';
import { type Copied, CopyCount, type CopyOptions } from './copy-options.ts';

export interface CopyInOptions extends CopyOptions, Ownership {
  /** Of a file; default: its own. */
  mode?: number;
}

/**
 * A file or directory of this machine becomes `remotePath`, owned by root unless said otherwise, with flat memory. What a directory holds is added to what is
 * there. Its links stay links, wherever they lead; special files are told in `skipped`. Read anew if a connection is lost.
 */
export async function copyIn(
  client: FuseClient,
  localPath: string,
  environmentId: string,
  remotePath: string,
  options: CopyInOptions = {},
): Promise<Copied> {
  const { user, uid, gid, signal, mode } = options;
  const call = { user, uid, gid, ...(signal === undefined ? {} : { signal }) };
  const files = client.environments.files(environmentId);
  const info = await stat(localPath);
  let count = new CopyCount(options);
  if (info.isDirectory()) {
    const { packDirectory } = await import('./pack-directory.ts');
    await files.untar(
      remotePath,
      () => {
        count = new CopyCount(options);
        return packDirectory(localPath, count);
      },
      call,
    );
    return count.at(remotePath);
  }
  if (!info.isFile()) throw new FuseError(`${localPath} is neither a file nor a directory`);
  async function* bytes(): AsyncGenerator<Uint8Array> {
    count = new CopyCount(options);
    for await (const chunk of createReadStream(localPath) as AsyncIterable<Uint8Array>) {
      count.add('', chunk.length);
      yield chunk;
    }
    count.files = 1;
  }
  await files.writeFile(remotePath, () => ReadableStream.from(bytes()), { ...call, mode: mode ?? info.mode & 0o777 });
  return count.at(remotePath);
}
