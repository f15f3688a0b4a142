import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { PAGE_BYTES } from '../snapshots/memory/layer-file.ts';
import { ProcessMemory } from './process-memory.ts';
import { QEMU_PROGRAM } from './qemu/command-line.ts';

const PAGES = 1_024;

let directory: TemporaryDirectory;
let path: string;
let child: ChildProcess;
beforeEach(async () => {
  directory = await temporaryDirectory();
  path = join(directory.path, 'memory');
  await writeFile(path, Buffer.alloc(PAGES * PAGE_BYTES, 'x'));
  start('ram');
});

/** A QEMU that maps the file once for each of these. */
function start(...ids: string[]): void {
  const memory = ids.flatMap((id) => [
    '-object',
    `memory-backend-file,id=${id},size=${PAGES * PAGE_BYTES},mem-path=${path},share=off`,
  ]);
  const nothingElse = ['-machine', 'none', '-nodefaults', '-no-user-config', '-display', 'none', '-S'];
  child = spawn(QEMU_PROGRAM, [...nothingElse, ...memory], { stdio: 'ignore' });
}

afterEach(async () => {
  await end();
  await directory[Symbol.asyncDispose]();
});

async function end(): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

const opened = (): Promise<ProcessMemory> =>
  vi.waitFor(() => ProcessMemory.open(child.pid ?? 0, path, 'r+'), { timeout: 20_000, interval: 20 });

it('knows the pages that are the process’s own, and leaves the file alone', async () => {
  await using memory = await opened();
  expect(memory.pages).toBe(PAGES);
  expect((await memory.dirtyPages()).indexOf(1)).toBe(-1);
  const before = Buffer.alloc(2 * PAGE_BYTES);
  await memory.read(before, 5);
  expect(before).toEqual(Buffer.alloc(2 * PAGE_BYTES, 'x'));
  expect((await memory.dirtyPages()).indexOf(1)).toBe(-1);
  await memory.write(Buffer.alloc(3 * PAGE_BYTES, 'y'), 100);
  await memory.write(Buffer.alloc(PAGE_BYTES), PAGES - 1);
  const dirty = [...(await memory.dirtyPages()).entries()].filter(([, isDirty]) => isDirty === 1).map(([page]) => page);
  expect(dirty).toEqual([100, 101, 102, PAGES - 1]);
  const after = Buffer.alloc(5 * PAGE_BYTES);
  await memory.read(after, 99);
  expect(after.toString()).toBe('x'.repeat(PAGE_BYTES) + 'y'.repeat(3 * PAGE_BYTES) + 'x'.repeat(PAGE_BYTES));
  expect((await readFile(path)).equals(Buffer.alloc(PAGES * PAGE_BYTES, 'x'))).toBe(true);
});

it.each([1, PAGES])('fails when the process has ended (%d pages)', async (pages) => {
  await using memory = await opened();
  await end();
  const bytes = Buffer.alloc(pages * PAGE_BYTES);
  await expect(memory.write(bytes, 0)).rejects.toThrow();
  await expect(memory.read(bytes, 0)).rejects.toThrow();
  await expect(memory.dirtyPages()).rejects.toThrow();
});

it('refuses a process that does not map the file', async () => {
  const other = join(directory.path, 'other');
  await writeFile(other, Buffer.alloc(PAGE_BYTES));
  await opened().then((memory) => memory[Symbol.asyncDispose]());
  await expect(ProcessMemory.open(child.pid ?? 0, other, 'r')).rejects.toMatchObject({ code: 'internal' });
});

it('refuses a process that maps it twice, of which nobody could say which is the memory', async () => {
  await end();
  start('ram', 'again');
  await vi.waitFor(() => expect(ProcessMemory.open(child.pid ?? 0, path, 'r')).rejects.toThrow('oddly'), {
    timeout: 20_000,
    interval: 20,
  });
});
