/**
 * Guest memory of a VM that runs on a private mapping of a file: the file's bytes, except for the pages that the VM wrote, which are the
 * process's own. Linux tells them apart in /proc/<pid>/pagemap (8 bytes a page): present (bit 63) or swapped (62), and not a page
 * of a file (61). The process must be stopped from writing: the caller has paused the VM.
 */
import { type FileHandle, open, readFile, stat } from 'node:fs/promises';
import { AppError } from '@fuse/contract';

const PAGE_BYTES = 4096;
const ENTRY_BYTES = 8;
const PAGES_PER_LOOK = 65_536;
const MAX_COPY_BYTES = 1_048_576;

interface Mapping {
  start: number;
  pages: number;
  fileOffset: number;
}

/** Writes the dirty pages of the mapping of `memoryPath` in process `pid` over `target`, which holds a copy of that file. */
export async function writeDirtyPages(
  options: { pid: number; memoryPath: string; target: FileHandle },
  signal?: AbortSignal,
): Promise<{ dirtyBytes: number }> {
  const mappings = await mappingsOf(options.pid, options.memoryPath);
  const pagemap = await open(`/proc/${options.pid}/pagemap`, 'r');
  try {
    const memory = await open(`/proc/${options.pid}/mem`, 'r');
    try {
      let dirtyBytes = 0;
      for (const mapping of mappings) {
        for await (const run of dirtyRuns(pagemap, mapping)) {
          signal?.throwIfAborted();
          const from = mapping.start + run.firstPage * PAGE_BYTES;
          const to = mapping.fileOffset + run.firstPage * PAGE_BYTES;
          await copy({ source: memory, from, target: options.target, to, length: run.pages * PAGE_BYTES });
          dirtyBytes += run.pages * PAGE_BYTES;
        }
      }
      return { dirtyBytes };
    } finally {
      await memory.close();
    }
  } finally {
    await pagemap.close();
  }
}

/** Lines of /proc/<pid>/maps: `start-end perms offset major:minor inode path`. The inode names the file, whatever became of its path. */
async function mappingsOf(pid: number, memoryPath: string): Promise<Mapping[]> {
  const { ino, size } = await stat(memoryPath, { bigint: true });
  const mappings: Mapping[] = [];
  for (const line of (await readFile(`/proc/${pid}/maps`, 'utf8')).split('\n')) {
    const match = /^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+)/.exec(line);
    if (match === null || match[5] !== String(ino)) continue;
    const [, start = '', end = '', permissions = '', offset = ''] = match;
    if (!permissions.endsWith('p')) throw new AppError('internal', `guest memory of process ${pid} is not private`);
    const from = Number.parseInt(start, 16);
    mappings.push({
      start: from,
      pages: (Number.parseInt(end, 16) - from) / PAGE_BYTES,
      fileOffset: Number.parseInt(offset, 16),
    });
  }
  mappings.sort((one, other) => one.fileOffset - other.fileOffset);
  let covered = 0;
  for (const mapping of mappings) {
    if (mapping.fileOffset !== covered) break;
    covered += mapping.pages * PAGE_BYTES;
  }
  if (covered !== Number(size) || mappings.length === 0)
    throw new AppError('internal', `process ${pid} does not map the whole of ${memoryPath}`);
  return mappings;
}

async function* dirtyRuns(pagemap: FileHandle, mapping: Mapping): AsyncGenerator<{ firstPage: number; pages: number }> {
  const entries = Buffer.alloc(PAGES_PER_LOOK * ENTRY_BYTES);
  for (let base = 0; base < mapping.pages; base += PAGES_PER_LOOK) {
    const count = Math.min(PAGES_PER_LOOK, mapping.pages - base);
    const position = (mapping.start / PAGE_BYTES + base) * ENTRY_BYTES;
    await readFully(pagemap, entries.subarray(0, count * ENTRY_BYTES), position);
    for (let page = 0; page < count; ) {
      if (!isDirty(entries, page)) {
        page += 1;
        continue;
      }
      const first = page;
      while (page < count && isDirty(entries, page)) page += 1;
      yield { firstPage: base + first, pages: page - first };
    }
  }
}

function isDirty(entries: Buffer, page: number): boolean {
  const flags = entries[page * ENTRY_BYTES + 7] ?? 0;
  return (flags & 0b1100_0000) !== 0 && (flags & 0b0010_0000) === 0;
}

const copyBuffer = (length: number): Buffer => Buffer.allocUnsafe(Math.min(length, MAX_COPY_BYTES));

async function copy(options: {
  source: FileHandle;
  from: number;
  target: FileHandle;
  to: number;
  length: number;
}): Promise<void> {
  const buffer = copyBuffer(options.length);
  for (let done = 0; done < options.length; done += buffer.length) {
    const part = buffer.subarray(0, Math.min(buffer.length, options.length - done));
    await readFully(options.source, part, options.from + done);
    await writeFully(options.target, part, options.to + done);
  }
}

async function readFully(handle: FileHandle, buffer: Buffer, position: number): Promise<void> {
  for (let done = 0; done < buffer.length; ) {
    const { bytesRead } = await handle.read(buffer, done, buffer.length - done, position + done);
    if (bytesRead === 0) throw new AppError('internal', 'guest memory ended early');
    done += bytesRead;
  }
}

async function writeFully(handle: FileHandle, buffer: Buffer, position: number): Promise<void> {
  for (let done = 0; done < buffer.length; ) {
    const { bytesWritten } = await handle.write(buffer, done, buffer.length - done, position + done);
    done += bytesWritten;
  }
}
