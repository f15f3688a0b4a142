/** A run's inputs: inline bytes go into the object store before the row exists, uploads are found and kept for it. */
import { AppError, invalidField } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import type { Tx } from '../db/db.ts';
import { type FileRow, holdFiles } from '../files/file-store.ts';
import { inputKey, runPrefix, stdinKey } from './object-keys.ts';
import type { Content, PreparedRequest, RunPlan } from './request.ts';

interface StoredObject {
  object_key: string;
  sha256: string;
  size_bytes: number;
}

/** By place in the plan; those that are uploads are missing. */
export interface StoredContents {
  files: (StoredObject | undefined)[];
  stdin: StoredObject | undefined;
}

const PUTS_AT_ONCE = 8;

export async function storeInline(objectStore: ObjectStore, runId: string, plan: RunPlan): Promise<StoredContents> {
  const stored: StoredContents = { files: plan.files.map(() => undefined), stdin: undefined };
  const puts = plan.files.map(({ content }, index) => async () => {
    stored.files[index] = await put(objectStore, inputKey(runId, index), content);
  });
  const { stdin } = plan;
  if (stdin !== undefined)
    puts.push(async () => {
      stored.stdin = await put(objectStore, stdinKey(runId), stdin);
    });
  let next = 0;
  const worker = async () => {
    for (let job = puts[next++]; job !== undefined; job = puts[next++]) await job();
  };
  await Promise.all(Array.from({ length: Math.min(PUTS_AT_ONCE, puts.length) }, worker));
  return stored;
}

async function put(objectStore: ObjectStore, key: string, content: Content): Promise<StoredObject | undefined> {
  if ('fileId' in content) return undefined;
  const { sha256, sizeBytes } = await objectStore.put(key, content.bytes);
  return { object_key: key, sha256, size_bytes: sizeBytes };
}

export const hasInline = (plan: RunPlan): boolean =>
  plan.files.some(({ content }) => 'bytes' in content) || (plan.stdin !== undefined && 'bytes' in plan.stdin);

/** Best effort: what is left behind is swept later. */
export const dropInline = (objectStore: ObjectStore, runId: string): Promise<unknown> =>
  objectStore.deletePrefix(runPrefix(runId));

/** The request as the row has it, not sealed yet. 400 naming the field when an upload does not exist. */
export async function storedRequest(
  tx: Tx,
  tenantId: string,
  plan: RunPlan,
  contents: StoredContents,
  keepFilesMs: number,
): Promise<PreparedRequest> {
  const uploads = await holdUploads(tx, tenantId, plan, keepFilesMs);
  const find = (content: Content, inline: StoredObject | undefined): StoredObject => {
    if (!('fileId' in content)) {
      if (inline === undefined) throw new AppError('internal', 'an inline file was not stored');
      return inline;
    }
    const row = uploads.get(content.fileId);
    if (row === undefined)
      throw invalidField(
        content.field,
        `there is no file "${content.fileId}"`,
        'upload it with POST /v1/files; uploads expire',
      );
    return { object_key: row.object_key, sha256: row.sha256, size_bytes: row.size_bytes };
  };
  const { argv, env, cwd, outputs, encoding, stdin } = plan;
  return {
    argv,
    env,
    cwd,
    outputs,
    encoding,
    files: plan.files.map(({ path, mode, content }, index) => ({
      path,
      mode,
      ...find(content, contents.files[index]),
    })),
    ...(stdin === undefined ? {} : { stdin_object_key: find(stdin, contents.stdin).object_key }),
  };
}

async function holdUploads(
  tx: Tx,
  tenantId: string,
  plan: RunPlan,
  keepMs: number,
): Promise<ReadonlyMap<string, FileRow>> {
  const contents = [...plan.files.map(({ content }) => content), ...(plan.stdin === undefined ? [] : [plan.stdin])];
  const ids = [...new Set(contents.flatMap((content) => ('fileId' in content ? [content.fileId] : [])))];
  if (ids.length === 0) return new Map();
  const rows = await holdFiles(tx, tenantId, ids, keepMs);
  return new Map(rows.map((row) => [row.id, row]));
}
