import { RESULT_STREAM_LIMIT_BYTES } from '@fuse/contract';
import type { HostExecResult } from '@fuse/host-protocol';
import type { Updateable } from 'kysely';
import type { RunsTable } from '../../db/schema.ts';

/** The heads of both streams as the row keeps them. */
export function headColumns(result: HostExecResult): Updateable<RunsTable> {
  const head = (base64: string) => Buffer.from(base64, 'base64').subarray(0, RESULT_STREAM_LIMIT_BYTES);
  return { stdout: head(result.stdout_base64), stderr: head(result.stderr_base64), truncated: result.truncated };
}
