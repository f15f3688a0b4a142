/** A directory of this machine as a tar, with flat memory. Links stay links, wherever they lead; what a guest could not take is passed over and told. */
import { constants } from 'node:fs';
import { lstat, open, opendir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Pack, pack } from 'tar-stream';
import { FuseError } from '../errors.ts';
import type { CopyCount } from './copy-options.ts';
import { drained } from './drained.ts';

const CHUNK_BYTES = 65_536;
/** It becomes root's in the guest. */
const MODE_BITS = 0o777;

export function packDirectory(root: string, count: CopyCount): ReadableStream<Uint8Array> {
  const archive = pack();
  addTree(archive, root, [], count).then(
    () => archive.finalize(),
    (error: Error) => archive.destroy(error),
  );
  return Readable.toWeb(Readable.from(archive, { objectMode: false })) as ReadableStream<Uint8Array>; // Node's and the global type of one thing
}

async function addTree(archive: Pack, root: string, parts: string[], count: CopyCount): Promise<void> {
  const directory = join(root, ...parts);
  const info = await lstat(directory);
  await addEntry(archive, {
    name: `./${parts.map((part) => `${part}/`).join('')}`,
    type: 'directory',
    ...headerOf(info),
  });
  if (parts.length > 0) count.directories += 1;
  for (const name of await namesIn(directory)) {
    const child = [...parts, name];
    const path = join(directory, name);
    const there = await lstat(path).catch((error: NodeJS.ErrnoException) => {
      // Its bytes are not UTF-8: no path of ours names it.
      if (error.code === 'ENOENT' && name.includes('\ufffd')) return undefined;
      throw error;
    });
    if (there === undefined) count.skip(child.join('/'), 'bad_name');
    else if (there.isDirectory()) await addTree(archive, root, child, count);
    else if (there.isFile()) await addFile(archive, path, child, count);
    else if (there.isSymbolicLink()) await addLink(archive, path, child, there, count);
    else count.skip(child.join('/'), 'special_file');
  }
}

/** In an order of its own, so that the same tree is the same archive. */
async function namesIn(directory: string): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of await opendir(directory)) names.push(name);
  return names.sort();
}

async function addFile(archive: Pack, path: string, parts: string[], count: CopyCount): Promise<void> {
  const name = parts.join('/');
  // A pipe that took the file's place meanwhile must not hold us up.
  await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const info = await file.stat();
  if (!info.isFile()) return count.skip(name, 'special_file');
  const { promise, entry } = entryOf(archive, { name: `./${name}`, type: 'file', size: info.size, ...headerOf(info) });
  let left = info.size;
  const bytes = new Uint8Array(CHUNK_BYTES);
  while (left > 0) {
    const { bytesRead } = await file.read(bytes, 0, Math.min(left, CHUNK_BYTES));
    if (bytesRead === 0) throw new FuseError(`${path} became shorter while it was read`);
    left -= bytesRead;
    if (!entry.write(bytes.slice(0, bytesRead))) await drained(entry);
    if (entry.destroyed) break;
    count.add(name, bytesRead);
  }
  entry.end(null);
  await promise;
  count.files += 1;
  count.tell(name);
}

async function addLink(
  archive: Pack,
  path: string,
  parts: string[],
  info: { mtime: Date },
  count: CopyCount,
): Promise<void> {
  const linkname = await readlink(path);
  const name = `./${parts.join('/')}`;
  await addEntry(archive, { name, type: 'symlink', linkname, mode: 0o777, mtime: info.mtime, uid: 0, gid: 0 });
  count.links += 1;
}

const headerOf = (info: { mode: number; mtime: Date }) => ({
  mode: info.mode & MODE_BITS,
  mtime: info.mtime,
  uid: 0,
  gid: 0,
});

async function addEntry(archive: Pack, header: Parameters<Pack['entry']>[0]): Promise<void> {
  await entryOf(archive, header).promise;
}

function entryOf(archive: Pack, header: Parameters<Pack['entry']>[0]) {
  const settle: { resolve?: () => void; reject?: (error: unknown) => void } = {};
  const promise = new Promise<void>((resolve, reject) => Object.assign(settle, { resolve, reject }));
  promise.catch(() => {}); // awaited once it has been written
  const entry = archive.entry(header, (error) => (error ? settle.reject?.(error) : settle.resolve?.()));
  return { promise, entry };
}
