/** What the host keeps of an exec beside its log, in `execs/<id>/exec.json`. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type ExecSpec, GuestExecExit, StartExec } from '@fuse/host-protocol';
import { z } from 'zod';
import { readIfThere, writeAtomically } from '../vms/atomic-file.ts';

export const ExecId = z
  .string()
  .regex(/^[a-zA-Z0-9][a-zA-Z0-9_-]{0,126}$/, 'must be 1 to 127 letters, digits, "-" or "_"');

export const ExecRecord = z.object({
  id: ExecId,
  /** In a VM that holds execs of another: what this one is called there. */
  guest_id: z.string().optional(),
  state: z.enum(['running', 'exited', 'lost']),
  /** Until the guest has confirmed the start, so that a host agent that died meanwhile can ask again. It holds secrets, so no longer. */
  request: StartExec.optional(),
  stdin_object_key: z.string().optional(),
  /** Cut for display. */
  argv: z.array(z.string()).default([]),
  cwd: z.string().optional(),
  user: z.string().optional(),
  created_at_ms: z.number().default(0),
  ended_at_ms: z.number().optional(),
  timeout_ms: z.number().int(),
  /** Moves on by the time that the VM stood still. */
  asked_at_ms: z.number(),
  max_log_bytes: z.number().int(),
  /** Once it has ended. */
  log_bytes: z.number().int().optional(),
  log_truncated: z.boolean(),
  exit: GuestExecExit.optional(),
  error: z.string().optional(),
});
export type ExecRecord = z.infer<typeof ExecRecord>;

export const framesPath = (directory: string): string => join(directory, 'frames');
const recordPath = (directory: string): string => join(directory, 'exec.json');

export function newExecRecord(id: string, request: StartExec, nowMs: number, scope: string | undefined): ExecRecord {
  return {
    id,
    ...(scope === undefined ? {} : { guest_id: scopedId(scope, id) }),
    state: 'running',
    request,
    ...(request.stdin_object_key === undefined ? {} : { stdin_object_key: request.stdin_object_key }),
    argv: request.argv,
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    ...(request.user === undefined ? {} : { user: request.user }),
    created_at_ms: nowMs,
    timeout_ms: request.timeout_ms,
    max_log_bytes: request.max_log_bytes,
    asked_at_ms: nowMs,
    log_truncated: false,
  };
}

/** The guest takes ids of at most 128 characters. */
function scopedId(scope: string, id: string): string {
  return `${scope}.${id.length <= 100 ? id : createHash('sha256').update(id).digest('hex')}`;
}

export function toGuestSpec(request: StartExec): ExecSpec {
  return {
    argv: request.argv,
    ...(request.env === undefined ? {} : { env: request.env }),
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    ...(request.user === undefined ? {} : { user: request.user }),
    timeout_ms: request.timeout_ms,
    stdin: request.stdin_object_key !== undefined,
    ...(request.kill_on_exit === undefined ? {} : { kill_on_exit: request.kill_on_exit }),
  };
}

export async function saveExecRecord(directory: string, record: ExecRecord): Promise<void> {
  await writeAtomically(recordPath(directory), JSON.stringify(record));
}

/** Undefined when none was written: the guest never heard of it. */
export async function loadExecRecord(directory: string): Promise<ExecRecord | undefined> {
  const text = await readIfThere(recordPath(directory));
  return text === undefined ? undefined : ExecRecord.parse(JSON.parse(text));
}
