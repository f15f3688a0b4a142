/** What a task left behind, from its guest into the object store. */
import { AppError } from '@fuse/contract';
import type { CollectedOutputs, CollectOutputs } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import { inParallel } from '../files/in-parallel.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../vms/vm.ts';
import { saveLogs } from './log-outputs.ts';
import { type PlannedOutput, planOutputs, type SkippedOutput } from './plan-outputs.ts';

const PARALLEL = 4;

type SavedOutput = CollectedOutputs['outputs'][number];

/** The same request again writes the same keys again. Without globs the guest is not asked: the logs of a dead VM can be saved. */
export async function collectOutputs(
  vm: Vm,
  store: ObjectStore,
  request: CollectOutputs,
  signal: AbortSignal,
): Promise<CollectedOutputs> {
  const exec = request.exec_id === undefined ? undefined : await vm.exec(request.exec_id);
  const jobs = [
    async (stop: AbortSignal): Promise<CollectedOutputs> =>
      request.globs.length === 0
        ? { outputs: [], skipped: [] }
        : vm.withGuest((guest) => saveFiles(guest, store, request, stop)),
    async (stop: AbortSignal): Promise<CollectedOutputs> => {
      if (exec === undefined) return { outputs: [], skipped: [] };
      const { outputs, framesObjectKey } = await saveLogs(exec, store, request.key_prefix, stop);
      return { outputs, skipped: [], frames_object_key: framesObjectKey };
    },
  ];
  const parts = await inParallel(jobs, jobs.length, signal, (job, stop) => job(stop));
  const framesObjectKey = parts[1]?.frames_object_key;
  return {
    outputs: parts.flatMap((part) => part.outputs),
    skipped: parts.flatMap((part) => part.skipped),
    ...(framesObjectKey === undefined ? {} : { frames_object_key: framesObjectKey }),
  };
}

async function saveFiles(
  guest: Guest,
  store: ObjectStore,
  request: CollectOutputs,
  signal: AbortSignal,
): Promise<{ outputs: SavedOutput[]; skipped: SkippedOutput[] }> {
  const found = await guest.glob({ cwd: request.cwd, patterns: request.globs, max_files: request.max_files }, signal);
  const { accepted, skipped } = planOutputs(found, request);
  const results = await inParallel(accepted, PARALLEL, signal, (file, stop) => saveFile(guest, store, file, stop));
  return {
    outputs: results.flatMap((result) => ('object_key' in result ? [result] : [])),
    skipped: [...skipped, ...results.flatMap((result) => ('reason' in result ? [result] : []))],
  };
}

/** A failure of the store, or of the VM, is thrown; a file that cannot be read as it was found is skipped. */
async function saveFile(
  guest: Guest,
  store: ObjectStore,
  file: PlannedOutput,
  signal: AbortSignal,
): Promise<SavedOutput | SkippedOutput> {
  const { path, absolutePath, objectKey } = file;
  const opened = await guest.readFile(absolutePath, signal).catch((error: unknown): SkippedOutput['reason'] => {
    if (error instanceof AppError && error.code === 'not_found') return 'changed_while_read';
    if (error instanceof AppError && error.code === 'conflict') return 'not_a_regular_file';
    if (error instanceof AppError && error.code === 'forbidden') return 'unreadable';
    throw error;
  });
  if (typeof opened === 'string') return { path, reason: opened };
  const { body, sizeBytes } = opened;
  let readError: unknown;
  body.once('error', (error) => {
    readError = error;
  });
  try {
    if (sizeBytes !== file.sizeBytes) return { path, reason: 'changed_while_read' };
    const { sha256 } = await store.put(objectKey, body, { maxBytes: sizeBytes, signal });
    return { path, kind: 'file', object_key: objectKey, size_bytes: sizeBytes, sha256 };
  } catch (error) {
    if (readError !== undefined && (await answers(guest))) return { path, reason: 'changed_while_read' };
    throw error;
  } finally {
    body.destroy();
  }
}

/** Tells a file that broke off from a guest that is gone. */
async function answers(guest: Guest): Promise<boolean> {
  return guest.health(AbortSignal.timeout(5_000)).then(
    () => true,
    () => false,
  );
}
