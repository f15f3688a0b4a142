/** What a host collected, made fit for the table: a guest chose the names. */
import type { SkippedOutput } from '@fuse/contract';
import type { CollectedOutputs } from '@fuse/host-protocol';
import type { Insertable } from 'kysely';
import type { RunOutputsTable } from '../db/schema.ts';
import { contentTypeOf } from './content-type.ts';
import { isStorable, storableText } from './storable-text.ts';

export interface SavedOutputs {
  rows: Insertable<RunOutputsTable>[];
  skipped: SkippedOutput[];
  framesObjectKey: string | null;
}

/** Names below it are ours: the logs'. */
const RESERVED = /^(?:\/workspace\/)?\.fuse(?:\/|$)/;
const MAX_SKIPPED = 1_000;

export function outputRows(runId: string, collected: CollectedOutputs): SavedOutputs {
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

/** The last entry says how many more there are. */
function bounded(skipped: SkippedOutput[]): SkippedOutput[] {
  if (skipped.length <= MAX_SKIPPED) return skipped;
  const rest = skipped.length - MAX_SKIPPED + 1;
  return [...skipped.slice(0, MAX_SKIPPED - 1), { path: `(${rest} more)`, reason: 'too_many' }];
}
