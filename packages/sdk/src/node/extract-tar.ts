/**
 * A guest's tar below a directory of this machine. Its bytes are hostile: absolute names and `..` end it (UnsafeArchiveError); links that lead out and special
 * files are passed over and told; symbolic links are made last, so that nothing is ever written through one.
 */
import { type Extract, extract, type Header } from 'tar-stream';
import { FuseError } from '../errors.ts';
import type { CopyCount } from './copy-options.ts';
import { drained } from './drained.ts';
import { leadsOut, partsInside } from './inside.ts';
import { SafeTarget, UnsafeArchiveError } from './safe-target.ts';
import { type SparseFile, sparseFile, writeSparse } from './sparse-entry.ts';

/** Links and directories are remembered to the end. */
const MAX_REMEMBERED = 1_000_000;

export interface ExtractOptions {
  count: CopyCount;
  /** The directory was made for this, and gets the mode that it had. */
  isNew: boolean;
  signal?: AbortSignal | undefined;
}

export async function extractTar(
  archive: ReadableStream<Uint8Array>,
  root: string,
  { count, isNew, signal }: ExtractOptions,
): Promise<void> {
  signal?.throwIfAborted();
  const target = new SafeTarget(root);
  const links: { parts: string[]; target: string; name: string }[] = [];
  const directories: { parts: string[]; mode: number }[] = [];
  const entries = extract();
  let broken: unknown;
  entries.on('error', (error) => {
    broken ??= error;
  });
  const closed = new Promise<void>((resolve) => entries.on('close', resolve));
  const feeding = feed(archive, entries, signal);
  try {
    for await (const entry of entries) {
      const { header } = entry;
      const sparse = sparseFile(header);
      const parts = partsInside(sparse?.name ?? header.name);
      if (parts === undefined) throw new UnsafeArchiveError(header.name, 'it leaves the directory');
      const name = parts.join('/');
      switch (header.type) {
        case 'directory':
          await target.makeDirectory(parts);
          directories.push({ parts, mode: header.mode });
          if (parts.length > 0) count.directories += 1;
          break;
        case 'file':
        case 'contiguous-file':
          if (parts.length === 0) throw new UnsafeArchiveError(header.name, 'a file without a name');
          await makeFile(target, parts, { header, sparse, bytes: entry as AsyncIterable<Uint8Array> }, count);
          break;
        case 'symlink':
          links.push({ parts, target: header.linkname, name: header.name });
          break;
        case 'link':
          await makeHardLink(target, parts, header, count);
          break;
        default:
          count.skip(name, 'special_file');
      }
      entry.resume();
      if (links.length + directories.length > MAX_REMEMBERED)
        throw new FuseError(`the archive holds more than ${MAX_REMEMBERED} directories and links`);
    }
  } catch (error) {
    entries.destroy();
    await Promise.all([feeding, closed]);
    // What broke the archive says more than that a file of it has no end.
    throw error instanceof FuseError ? error : (broken ?? error);
  }
  await feeding;
  for (const link of links) {
    if (link.parts.length === 0 || link.target === '' || leadsOut(link.parts, link.target)) {
      count.skip(link.parts.join('/'), 'link_leads_out');
      continue;
    }
    await target.makeLink(link.parts, link.target);
    count.links += 1;
  }
  for (const { parts, mode } of directories.reverse())
    if (isNew || parts.length > 0) await target.setDirectoryMode(parts, mode);
}

/** Never rejects: what fails is what `entries` fails with. */
async function feed(archive: ReadableStream<Uint8Array>, entries: Extract, signal?: AbortSignal): Promise<void> {
  const reader = archive.getReader();
  const abort = () => {
    entries.destroy(signal?.reason);
    reader.cancel(signal?.reason).catch(() => {}); // it may be broken already
  };
  signal?.addEventListener('abort', abort, { once: true });
  try {
    while (!entries.destroyed) {
      const { done, value } = await reader.read();
      if (done) break;
      if (!entries.write(value)) await drained(entries);
    }
    entries.end(null);
  } catch (error) {
    entries.destroy(error as Error); // the stream's own
  } finally {
    signal?.removeEventListener('abort', abort);
    await reader.cancel().catch(() => {}); // it may be the one that broke
  }
}

async function makeFile(
  target: SafeTarget,
  parts: readonly string[],
  { header, sparse, bytes }: { header: Header; sparse: SparseFile | undefined; bytes: AsyncIterable<Uint8Array> },
  count: CopyCount,
): Promise<void> {
  const name = parts.join('/');
  await target.makeFile(parts, { mode: header.mode, modifiedAt: header.mtime }, async (file) => {
    if (sparse !== undefined) return writeSparse(file, sparse, bytes, (written) => count.add(name, written));
    for await (const chunk of bytes) {
      await file.writeFile(chunk);
      count.add(name, chunk.length);
    }
  });
  count.files += 1;
  count.tell(name);
}

async function makeHardLink(
  target: SafeTarget,
  parts: readonly string[],
  header: Header,
  count: CopyCount,
): Promise<void> {
  const existing = partsInside(header.linkname);
  if (existing === undefined || existing.length === 0 || parts.length === 0)
    count.skip(parts.join('/'), 'link_leads_out');
  else if (await target.makeHardLink(parts, existing)) count.files += 1;
  else count.skip(parts.join('/'), 'link_leads_out');
}
