/** What the host keeps of an exec beside its log, in `execs/<id>/exec.json`. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { AppError, TerminalSize } from '@fuse/contract';
import { type ExecSpec, GuestExecExit, StartExec } from '@fuse/host-protocol';
import { z } from 'zod';
import { readIfThere, writeInPlace } from '../vms/atomic-file.ts';

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
  /** Its first stdin is in a file of its own until the guest has it. */
  stdin_file: z.boolean().default(false),
  /** How much came with its start. */
  first_stdin_bytes: z.number().int().default(0),
  /** Whether it takes more by requests, until it is `closed`. */
  stdin_open: z.boolean().default(false),
  stdin_closed: z.boolean().default(false),
  /** Its terminal's size. */
  tty: TerminalSize.optional(),
  keep: z.enum(['head', 'ends']).default('head'),
  hold: z.object({ until_followed_ms: z.number() }).optional(),
  kill_unwatched_ms: z.number().optional(),
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
  /** Where the log ends, once it does. */
  log_bytes: z.number().int().optional(),
  log_truncated: z.boolean(),
  exit: GuestExecExit.optional(),
  error: z.string().optional(),
});
export type ExecRecord = z.infer<typeof ExecRecord>;

export const stdinPath = (directory: string): string => join(directory, 'stdin');
export const recordPath = (directory: string): string => join(directory, 'exec.json');

/** For display: what is over 4 KiB in sum is cut. */
const MAX_SHOWN_ARGV = 4_096;

/** Throws `invalid_argument` when what it asks for does not go together. */
export function newExecRecord(id: string, asked: StartExec, nowMs: number, scope: string | undefined): ExecRecord {
  const { stdin_base64, ...request } = asked;
  if (request.stdin_object_key !== undefined && (stdin_base64 !== undefined || takesMore(request)))
    throw new AppError('invalid_argument', 'stdin_object_key goes with no other stdin', {
      details: { field: 'stdin_object_key' },
    });
  return {
    id,
    ...(scope === undefined ? {} : { guest_id: scopedId(scope, id) }),
    state: 'running',
    request,
    ...(request.stdin_object_key === undefined ? {} : { stdin_object_key: request.stdin_object_key }),
    stdin_file: stdin_base64 !== undefined,
    first_stdin_bytes: stdin_base64 === undefined ? 0 : Buffer.byteLength(stdin_base64, 'base64'),
    stdin_open: takesMore(request),
    stdin_closed: false,
    ...(request.tty === undefined ? {} : { tty: request.tty }),
    keep: request.keep ?? 'head',
    ...(request.hold === undefined ? {} : { hold: request.hold }),
    ...(request.kill_unwatched_ms === undefined ? {} : { kill_unwatched_ms: request.kill_unwatched_ms }),
    argv: shownArgv(request.argv),
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    ...(request.user === undefined ? {} : { user: request.user }),
    created_at_ms: nowMs,
    timeout_ms: request.timeout_ms,
    max_log_bytes: request.max_log_bytes,
    asked_at_ms: nowMs,
    log_truncated: false,
  };
}

const takesMore = ({ stdin_open, tty }: StartExec): boolean => stdin_open === true || tty !== undefined;

export function shownArgv(argv: readonly string[]): string[] {
  const shown: string[] = [];
  let room = MAX_SHOWN_ARGV;
  for (const arg of argv) {
    if (arg.length > room) return [...shown, `${arg.slice(0, room)}…`];
    shown.push(arg);
    room -= arg.length + 1;
  }
  return shown;
}

/** The guest takes ids of at most 128 characters. */
function scopedId(scope: string, id: string): string {
  return `${scope}.${id.length <= 100 ? id : createHash('sha256').update(id).digest('hex')}`;
}

export function toGuestSpec(request: StartExec, hasStdin: boolean): ExecSpec {
  return {
    argv: request.argv,
    ...(request.env === undefined ? {} : { env: request.env }),
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    ...(request.user === undefined ? {} : { user: request.user }),
    timeout_ms: request.timeout_ms,
    stdin: hasStdin || request.stdin_object_key !== undefined || takesMore(request),
    ...(request.kill_on_exit === undefined ? {} : { kill_on_exit: request.kill_on_exit }),
    ...(request.tty === undefined ? {} : { tty: request.tty }),
    ...(request.login === undefined ? {} : { login: request.login }),
  };
}

export function saveExecRecord(directory: string, record: ExecRecord): Promise<void> {
  return writeInPlace(recordPath(directory), JSON.stringify(record));
}

/** Undefined when none was written: the guest never heard of it. */
export async function loadExecRecord(directory: string): Promise<ExecRecord | undefined> {
  const text = await readIfThere(recordPath(directory));
  return text === undefined || text === '' ? undefined : ExecRecord.parse(JSON.parse(text));
}
