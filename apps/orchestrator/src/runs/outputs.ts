/** What a host collected, made fit for the table: a guest chose the names. */
import type { SkippedOutput } from '@fuse/contract';
import type { CollectedOutputs } from '@fuse/host-protocol';
import type { Insertable } from 'kysely';
import type { RunOutputsTable } from '../db/schema.ts';
import { contentTypeOf } from './content-type.ts';
import { isStorable, storableText } from './storable-text.ts';

/** What a host collected; it knows nothing of quotas. */
export type Collection = Omit<CollectedOutputs, 'skipped'> & { skipped: SkippedOutput[] };

export interface SavedOutputs {
  rows: Insertable<RunOutputsTable>[];
  skipped: SkippedOutput[];
  framesObjectKey: string | null;
}

/** Names below it are ours: the logs'. */
const RESERVED = /^(?:\/workspace\/)?\.fuse(?:\/|$)/;
const MAX_SKIPPED = 1_000;

export function outputRows(runId: string, collected: Collection): SavedOutputs {
  const skipped = collected.skipped.map(({ path, reason }): SkippedOutput => ({ path: storableText(path), reason }));
  const seen = new Set<string>();
  const rows: SavedOutputs['rows'] = [];
  for (const output of collected.outputs) {
    const { path, kind } = output;
    if (!isStorable(path) || (kind === 'file' && RESERVED.test(path)) || seen.has(path)) {
      if (!seen.has(path)) skipped.push({ path: storableText(path), reason: 'bad_name' });
      continue;
    }
    seen.add(path);
    rows.push({
      run_id: runId,
      position: rows.length,
      path,
      kind,
      size_bytes: output.size_bytes,
      sha256: output.sha256,
      content_type: contentTypeOf(path),
      object_key: output.object_key,
    });
  }
  return { rows, skipped: bounded(skipped), framesObjectKey: collected.frames_object_key ?? null };
}

/** What has room in so many bytes, the logs first; the others are skipped, and their objects nobody's. */
export function withinQuota(
  saved: SavedOutputs,
  bytesLeft: number | undefined,
): SavedOutputs & { droppedKeys: string[] } {
  const dropped = new Set<SavedOutputs['rows'][number]>();
  let left = bytesLeft ?? Number.POSITIVE_INFINITY;
  const logsFirst = [...saved.rows].sort((a, b) => Number(a.kind === 'file') - Number(b.kind === 'file'));
  for (const row of logsFirst) {
    if (row.size_bytes > left) dropped.add(row);
    else left -= row.size_bytes;
  }
  if (dropped.size === 0) return { ...saved, droppedKeys: [] };
  const skipped = [...dropped].map(({ path }): SkippedOutput => ({ path, reason: 'quota_exceeded' }));
  return {
    ...saved,
    rows: saved.rows.filter((row) => !dropped.has(row)).map((row, position) => ({ ...row, position })),
    skipped: bounded([...saved.skipped, ...skipped]),
    droppedKeys: [...dropped].map(({ object_key }) => object_key),
  };
}

/** The last entry says how many more there are. */
function bounded(skipped: SkippedOutput[]): SkippedOutput[] {
  if (skipped.length <= MAX_SKIPPED) return skipped;
  const rest = skipped.length - MAX_SKIPPED + 1;
  return [...skipped.slice(0, MAX_SKIPPED - 1), { path: `(${rest} more)`, reason: 'too_many' }];
}
