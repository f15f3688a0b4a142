/** A run as the API shows it. */
import {
  type Encoding,
  NetworkPolicy,
  type Run,
  type RunOutput,
  type RunTimings,
  type SkippedOutput,
} from '@fuse/contract';
import type { StoredRequest } from './request.ts';
import type { RunOutputRow, RunRecord } from './run-reads.ts';

/** Signs the download URL of one output. */
export type SignOutput = (output: RunOutputRow) => Promise<{ url: string; url_expires_at: string }>;

export async function toRun(record: RunRecord, outputs: readonly RunOutputRow[], sign: SignOutput): Promise<Run> {
  const request = record.request as StoredRequest; // written by insertRun, and only there
  return {
    id: record.id,
    state: record.state,
    image: record.image,
    ...present('environment_id', record.environment_id),
    limits: {
      cpus: record.cpus,
      ram_mb: record.ram_mb,
      storage_gb: record.storage_gb,
      timeout_ms: record.timeout_ms,
    },
    ...(Object.keys(record.labels).length === 0 ? {} : { labels: record.labels }),
    network: NetworkPolicy.parse(record.network), // in the schema's order of fields
    ...present('exit_code', record.exit_code),
    ...present('signal', record.signal),
    ...present('oom_killed', record.oom_killed),
    ...streams(record, request.encoding),
    encoding: request.encoding,
    ...present('stdout_bytes', record.stdout_bytes),
    ...present('stderr_bytes', record.stderr_bytes),
    ...present('truncated', record.truncated),
    outputs: await Promise.all(outputs.map((output) => toRunOutput(output, sign))),
    ...(record.skipped_outputs.length === 0 ? {} : { skipped_outputs: record.skipped_outputs as SkippedOutput[] }), // as saved
    ...(record.error_code === null
      ? {}
      : { error: { code: record.error_code, message: record.error_message ?? record.error_code } }),
    timings: timingsOf(record),
    created_at: record.created_at.toISOString(),
    ...present('started_at', record.started_at?.toISOString()),
    ...present('finished_at', record.finished_at?.toISOString()),
    updated_at: record.updated_at.toISOString(),
  };
}

export async function toRunOutput(output: RunOutputRow, sign: SignOutput): Promise<RunOutput> {
  return {
    path: output.path,
    kind: output.kind,
    size_bytes: output.size_bytes,
    sha256: output.sha256,
    content_type: output.content_type,
    ...(await sign(output)),
  };
}

const phases = ['admit_ms', 'queue_ms', 'start_ms', 'run_ms', 'save_ms', 'destroy_ms'] as const;

/** In the order that they happen. */
function timingsOf(record: RunRecord): RunTimings {
  const known: Record<string, number | null> = { ...record.timings, destroy_ms: record.destroy_ms };
  return Object.fromEntries(
    phases.flatMap((phase) => (typeof known[phase] === 'number' ? [[phase, known[phase]]] : [])),
  );
}

function streams(record: RunRecord, encoding: Encoding): Pick<Run, 'stdout' | 'stderr' | 'lossy'> {
  if (record.stdout === null || record.stderr === null) return {};
  if (encoding === 'base64')
    return {
      stdout: Buffer.from(record.stdout).toString('base64'),
      stderr: Buffer.from(record.stderr).toString('base64'),
    };
  const stdout = decodeHead(record.stdout, record.stdout.length < (record.stdout_bytes ?? 0));
  const stderr = decodeHead(record.stderr, record.stderr.length < (record.stderr_bytes ?? 0));
  return { stdout: stdout.text, stderr: stderr.text, ...(stdout.lossy || stderr.lossy ? { lossy: true } : {}) };
}

/** A character that the cut went through is left out; it is not the guest's bytes that are wrong then. */
export function decodeHead(bytes: Uint8Array, cut: boolean): { text: string; lossy: boolean } {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: cut });
    return { text, lossy: false };
  } catch {
    const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: cut });
    return { text, lossy: true };
  }
}

const present = <K extends string, V>(key: K, value: V | null | undefined): Partial<Record<K, V>> =>
  value === null || value === undefined ? {} : ({ [key]: value } as Record<K, V>); // a computed key loses its name
