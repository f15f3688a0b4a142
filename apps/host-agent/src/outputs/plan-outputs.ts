/**
 * Which of the files that a guest offers are saved. The guest is hostile: what it names is only ever a label, never a path or a key on
 * this side, and a label that a reader could take for a way out is refused.
 */
import type { CollectedOutputs, CollectOutputs, GuestGlobResult } from '@fuse/host-protocol';

/** Names below it are the host's own. */
const RESERVED = '.fuse';
const MAX_NAME_BYTES = 255;

export type SkippedOutput = CollectedOutputs['skipped'][number];

export interface PlannedOutput {
  path: string;
  absolutePath: string;
  sizeBytes: number;
  objectKey: string;
}

export interface OutputPlan {
  accepted: PlannedOutput[];
  skipped: SkippedOutput[];
}

export function planOutputs(
  found: GuestGlobResult,
  limits: Pick<CollectOutputs, 'key_prefix' | 'max_files' | 'max_file_bytes' | 'max_total_bytes'>,
): OutputPlan {
  const accepted: PlannedOutput[] = [];
  const skipped: SkippedOutput[] = [...found.skipped];
  const seen = new Set<string>();
  let totalBytes = 0;
  for (const { path, absolute_path, size_bytes } of found.files) {
    if (seen.has(path)) continue;
    seen.add(path);
    const reason = !isCleanName(path)
      ? 'bad_name'
      : size_bytes > limits.max_file_bytes
        ? 'too_large'
        : accepted.length >= limits.max_files
          ? 'too_many'
          : totalBytes + size_bytes > limits.max_total_bytes
            ? 'total_too_large'
            : undefined;
    if (reason !== undefined) {
      skipped.push({ path, reason });
      continue;
    }
    totalBytes += size_bytes;
    accepted.push({
      path,
      absolutePath: absolute_path,
      sizeBytes: size_bytes,
      objectKey: `${limits.key_prefix}/${accepted.length}`,
    });
  }
  return { accepted, skipped };
}

/** Relative, or absolute; no empty, "." or ".." part, no NUL, nothing that is not text; newlines and quotes are names like any other. */
export function isCleanName(path: string): boolean {
  if (path === '' || path.includes('\0') || /\p{Surrogate}/u.test(path)) return false;
  const parts = (path.startsWith('/') ? path.slice(1) : path).split('/');
  if (parts[0] === RESERVED) return false;
  return parts.every(
    (part) => part !== '' && part !== '.' && part !== '..' && Buffer.byteLength(part) <= MAX_NAME_BYTES,
  );
}
