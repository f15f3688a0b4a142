/**
 * Guest memory of a VM that runs on a private mapping of a file: the file's bytes, except for the pages that the VM wrote, which are the
 * process's own. Linux tells them apart in /proc/<pid>/pagemap (8 bytes a page): present (bit 63) or swapped (62), and not a page
 * of a file (61).
 */
import { type FileHandle, open, readFile, stat } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { PAGE_BYTES } from '../snapshots/memory/layer-file.ts';
import { readFully, writeFully } from '../snapshots/memory/whole-io.ts';

const ENTRY_BYTES = 8;
const PAGES_PER_LOOK = 131_072;

interface Mapping {
  start: number;
  firstPage: number;
  pages: number;
}

/** The guest memory of one process, addressed by the guest's pages. */
export class ProcessMemory implements AsyncDisposable {
  readonly pages: number;
  readonly #pid: number;
  readonly #handle: FileHandle;
  readonly #mappings: readonly Mapping[];

  private constructor(pid: number, handle: FileHandle, mappings: readonly Mapping[]) {
    this.#pid = pid;
    this.#handle = handle;
    this.#mappings = mappings;
    this.pages = mappings.reduce((sum, { pages }) => sum + pages, 0);
  }

  /** Of process `pid`, which maps the whole of `memoryPath` privately. */
  static async open(pid: number, memoryPath: string, access: 'r' | 'r+'): Promise<ProcessMemory> {
    const mappings = await mappingsOf(pid, memoryPath);
    return new ProcessMemory(pid, await open(`/proc/${pid}/mem`, access), mappings);
  }

  /** One byte a page: 1 where the page is the process's own. */
  async dirtyPages(): Promise<Uint8Array> {
    const dirty = new Uint8Array(this.pages);
    const entries = Buffer.allocUnsafe(Math.min(PAGES_PER_LOOK, this.pages) * ENTRY_BYTES);
    const pagemap = await open(`/proc/${this.#pid}/pagemap`, 'r');
    try {
      for (const mapping of this.#mappings) {
        for (let base = 0; base < mapping.pages; base += PAGES_PER_LOOK) {
          const count = Math.min(PAGES_PER_LOOK, mapping.pages - base);
          const position = (mapping.start / PAGE_BYTES + base) * ENTRY_BYTES;
          await readFully(pagemap, entries.subarray(0, count * ENTRY_BYTES), position);
          for (let page = 0; page < count; page++) {
            const flags = entries[page * ENTRY_BYTES + 7] ?? 0;
            if ((flags & 0b1100_0000) !== 0 && (flags & 0b0010_0000) === 0) dirty[mapping.firstPage + base + page] = 1;
          }
        }
      }
    } finally {
      await pagemap.close();
    }
    return dirty;
  }

  read(bytes: Buffer, firstPage: number): Promise<void> {
    return this.#each(bytes, firstPage, (part, address) => readFully(this.#handle, part, address));
  }

  /** The pages become the process's own. */
  write(bytes: Buffer, firstPage: number): Promise<void> {
    return this.#each(bytes, firstPage, (part, address) => writeFully(this.#handle, part, address));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#handle.close();
  }

  async #each(bytes: Buffer, firstPage: number, work: (part: Buffer, address: number) => Promise<void>): Promise<void> {
    for (const mapping of this.#mappings) {
      const from = Math.max(firstPage, mapping.firstPage);
      const to = Math.min(firstPage + bytes.length / PAGE_BYTES, mapping.firstPage + mapping.pages);
      if (from >= to) continue;
      const part = bytes.subarray((from - firstPage) * PAGE_BYTES, (to - firstPage) * PAGE_BYTES);
      await work(part, mapping.start + (from - mapping.firstPage) * PAGE_BYTES);
    }
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
      firstPage: Number.parseInt(offset, 16) / PAGE_BYTES,
      pages: (Number.parseInt(end, 16) - from) / PAGE_BYTES,
    });
  }
  mappings.sort((one, other) => one.firstPage - other.firstPage);
  let covered = 0;
  for (const mapping of mappings) {
    // A part that is mapped twice would count twice, as often as a hostile VMM likes.
    if (mapping.firstPage !== covered) throw new AppError('internal', `process ${pid} maps ${memoryPath} oddly`);
    covered += mapping.pages;
  }
  if (covered * PAGE_BYTES !== Number(size) || mappings.length === 0)
    throw new AppError('internal', `process ${pid} does not map the whole of ${memoryPath}`);
  return mappings;
}
