/**
 * What is kept of a machine while its VM is paused: memory and devices in `paused/` beside its disk, all flushed, with a list of the files. Digests are
 * added to the list in the background.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { z } from 'zod';
import { captureMachineState, loadableMachineState } from '../snapshots/machine-state.ts';
import { describeFiles, digestFiles, flushFiles, StoredFile, verifyFiles } from '../snapshots/stored-files.ts';
import type { SnapshotFiles, Vmm } from '../vmm/driver.ts';
import { readIfThere, writeDurably } from './atomic-file.ts';
import { writableDiskPath } from './machine.ts';

const PAUSED_DIRECTORY = 'paused';
const LIST_FILE = 'paused.json';
const DISK_FILE = writableDiskPath('');

const FileList = z.object({ files: z.array(StoredFile) });

/** Of a stopped machine. On failure the caller discards what was made. */
export async function savePaused(vmm: Vmm, machineDirectory: string, signal: AbortSignal): Promise<void> {
  await discardPaused(machineDirectory);
  const directory = join(machineDirectory, PAUSED_DIRECTORY);
  await mkdir(directory, { mode: 0o700 });
  const captured = await captureMachineState(vmm, directory, signal);
  const names = [...captured.map((name) => join(PAUSED_DIRECTORY, name)), DISK_FILE];
  await flushFiles(machineDirectory, names);
  await saveList(machineDirectory, await describeFiles(machineDirectory, names));
}

export async function discardPaused(machineDirectory: string): Promise<void> {
  await rm(join(machineDirectory, LIST_FILE), { force: true });
  await rm(join(machineDirectory, PAUSED_DIRECTORY), { recursive: true, force: true });
}

export async function digestPaused(machineDirectory: string, signal: AbortSignal): Promise<void> {
  const files = await loadList(machineDirectory);
  if (files.every(({ digest }) => digest !== undefined)) return;
  const digested = await digestFiles(machineDirectory, files, signal);
  signal.throwIfAborted();
  await saveList(machineDirectory, digested);
}

/** Rejects with integrity_error when a byte of memory, devices or disk has changed. */
export async function verifiedPaused(machineDirectory: string, signal: AbortSignal): Promise<SnapshotFiles> {
  const files = await loadList(machineDirectory);
  await verifyFiles(machineDirectory, files, signal);
  const names = files.map(({ name }) => name);
  return loadableMachineState(join(machineDirectory, PAUSED_DIRECTORY), names);
}

async function saveList(machineDirectory: string, files: StoredFile[]): Promise<void> {
  await writeDurably(join(machineDirectory, LIST_FILE), JSON.stringify({ files }));
}

async function loadList(machineDirectory: string): Promise<StoredFile[]> {
  try {
    const text = await readIfThere(join(machineDirectory, LIST_FILE));
    return FileList.parse(JSON.parse(text ?? '')).files;
  } catch (cause) {
    throw new AppError('integrity_error', 'the list of what was saved at the pause is damaged', { cause });
  }
}
