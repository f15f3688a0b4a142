/** Runs: a one-shot task. Code in, result and outputs out, VM gone. */
import { z } from 'zod';
import { MIN_RAM_MB } from './environment.ts';
import { Argv } from './exec.ts';
import { GivenNetworkPolicy, NetworkPolicy } from './network.ts';
import { absentIfNull, Encoding, EnvVars, GuestPath, Labels, Timestamp } from './primitives.ts';

export const runTransitions = {
  queued: ['starting', 'failed', 'cancelled'],
  starting: ['running', 'failed', 'cancelled'],
  running: ['saving', 'failed', 'cancelled'],
  saving: ['succeeded', 'failed', 'timed_out', 'cancelled'],
  succeeded: [],
  failed: [],
  timed_out: [],
  cancelled: [],
} as const satisfies Record<string, readonly string[]>;

export type RunState = keyof typeof runTransitions;
export const runStates = Object.keys(runTransitions) as [RunState, ...RunState[]];
export const RunState = z.enum(runStates);
export const terminalRunStates = runStates.filter((state) => runTransitions[state].length === 0);
export const isTerminalRunState = (state: RunState): boolean => runTransitions[state].length === 0;
export function runCanBecome(from: RunState, to: RunState): boolean {
  return (runTransitions[from] as readonly string[]).includes(to);
}

/** Why a run has no truthful result of its own command. A non-zero exit is a result and carries none of these. */
export const runErrorCodes = [
  'queue_timeout', // no room before the queue deadline; nothing was started
  'start_failed', // no VM could be started; the command never ran
  'input_failed', // an input file could not be written; the command never ran
  'exec_failed', // the program could not be started (not found, not executable); it never ran
  'vm_lost', // the VM died while the command ran; its end is unknown and it is not run again
  'host_lost', // the host is gone; as vm_lost
  'save_failed', // the command ended, its outputs could not all be saved
  'internal',
] as const;
export const RunErrorCode = z.enum(runErrorCodes);
export type RunErrorCode = z.infer<typeof RunErrorCode>;

export const RUN_DEFAULT_TIMEOUT_MS = 300_000;
export const RUN_MAX_TIMEOUT_MS = 86_400_000;
export const RUN_DEFAULT_QUEUE_TIMEOUT_MS = 60_000;
export const RUN_WORKSPACE = '/workspace';
/** Bytes of each stream that a run's result carries inline; the full log is an output. */
export const RESULT_STREAM_LIMIT_BYTES = 262_144;
export const RUN_BODY_LIMIT_BYTES = 32 * 1024 * 1024;
export const MAX_OUTPUTS = 1_000;

export const RunLimits = z.strictObject({
  cpus: absentIfNull(z.number().int().min(1).max(256)),
  ram_mb: absentIfNull(z.number().int().min(MIN_RAM_MB, `must be at least ${MIN_RAM_MB}`).max(4_194_304)),
  storage_gb: absentIfNull(z.number().int().min(1).max(65_536)),
  timeout_ms: absentIfNull(z.number().int().min(1).max(RUN_MAX_TIMEOUT_MS)),
});

/** No repeated group in a pattern here: on tens of megabytes it overflows the stack of the regular expression engine. */
function isPaddedBase64(text: string): boolean {
  if (text.length % 4 !== 0) return false;
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  return !/[^A-Za-z0-9+/]/.test(text.slice(0, text.length - padding));
}
const Base64 = z.string().refine(isPaddedBase64, 'must be standard base64 with padding');

/** A file put in place before the command starts: exactly one of `content`, `content_base64` and `file_id`. */
export const RunFile = z
  .strictObject({
    /** Absolute, or relative to `/workspace`. */
    path: z.string().min(1).max(4096),
    content: absentIfNull(z.string()),
    content_base64: absentIfNull(Base64),
    /** Of an upload made by `POST /v1/files`. */
    file_id: absentIfNull(z.string().max(64)),
    /** Octal permission bits; default "0644". */
    mode: absentIfNull(z.string().regex(/^0?[0-7]{3}$/, 'must be octal permission bits such as "0644"')),
  })
  .refine(
    (file) => [file.content, file.content_base64, file.file_id].filter((value) => value !== undefined).length === 1,
    'exactly one of content, content_base64 and file_id is required',
  );
export type RunFile = z.infer<typeof RunFile>;

export const Language = z.enum(['python', 'javascript', 'shell']);
export type Language = z.infer<typeof Language>;

/** As the guest reads a part: characters, escaped ones, sets. A set holds one character or range at least; `-` and `]` stand in it escaped. */
const GLOB_PART = /^(?:[^\\[]|\\.|\[(?:[!^]|(?![!^]))(?:(?:[^\\\]-]|\\.)(?:-(?:[^\\\]-]|\\.))?)+\])*$/su;

/** A glob inside the workspace (`*`, `**`, `?`, `[…]`), or an absolute one. Never leaves it: no `..` part. */
export const OutputGlob = z
  .string()
  .min(1)
  .max(1024)
  .refine((glob) => !/[\0\n]/.test(glob), 'must not hold NUL or newline')
  .refine((glob) => !glob.split('/').includes('..'), 'must not hold a ".." part')
  .refine((glob) => glob.split('/').some((part) => part !== '' && part !== '.'), 'names no file')
  .refine(
    (glob) => glob.split('/').every((part) => GLOB_PART.test(part)),
    'has a `[` without its set and `]`, or a trailing backslash',
  );

export const CreateRun = z
  .object({
    image: absentIfNull(z.string().max(128)),
    cmd: absentIfNull(Argv),
    shell: absentIfNull(z.string().min(1).max(1_048_576)),
    code: absentIfNull(z.string().max(8 * 1024 * 1024)),
    language: absentIfNull(Language),
    limits: absentIfNull(RunLimits),
    env: absentIfNull(EnvVars),
    cwd: absentIfNull(GuestPath.or(z.literal('/'))),
    stdin: absentIfNull(z.string()),
    stdin_base64: absentIfNull(Base64),
    stdin_file_id: absentIfNull(z.string().max(64)),
    files: absentIfNull(z.array(RunFile).max(1_000)),
    outputs: absentIfNull(z.array(OutputGlob).max(100)),
    labels: absentIfNull(Labels),
    /** How `stdout` and `stderr` stand in the result. */
    encoding: absentIfNull(Encoding),
    /** How long the run may wait for room; 0 means "now or never". */
    queue_timeout_ms: absentIfNull(z.number().int().min(0).max(86_400_000)),
    /** Answer when the run has ended (200) instead of when it is admitted (202). */
    wait: absentIfNull(z.boolean()),
    /** What it may reach (network.ts). Absent: its tenant's default, else the deployment's, which is `none`. */
    network: absentIfNull(GivenNetworkPolicy),
  })
  .superRefine((run, ctx) => {
    const given = [run.cmd, run.shell, run.code].filter((value) => value !== undefined).length;
    if (given !== 1)
      ctx.addIssue({ code: 'custom', path: ['cmd'], message: 'exactly one of cmd, shell and code is required' });
    if (run.code !== undefined && run.language === undefined)
      ctx.addIssue({
        code: 'custom',
        path: ['language'],
        message: 'is required with code: python, javascript or shell',
      });
    if (run.code === undefined && run.language !== undefined)
      ctx.addIssue({ code: 'custom', path: ['language'], message: 'goes with code only' });
    if ([run.stdin, run.stdin_base64, run.stdin_file_id].filter((value) => value !== undefined).length > 1)
      ctx.addIssue({
        code: 'custom',
        path: ['stdin'],
        message: 'at most one of stdin, stdin_base64 and stdin_file_id',
      });
  });
export type CreateRun = z.infer<typeof CreateRun>;

export const RunOutput = z.object({
  /** As the guest named it: relative to `/workspace`, or absolute; logs are `.fuse/stdout.log` and `.fuse/stderr.log`. */
  path: z.string(),
  kind: z.enum(['file', 'log']),
  size_bytes: z.number().int(),
  sha256: z.string(),
  content_type: z.string(),
  /** Downloads without credentials until `url_expires_at`. */
  url: z.string(),
  url_expires_at: Timestamp,
});
export type RunOutput = z.infer<typeof RunOutput>;

/** What a glob matched and what was not saved: never dropped in silence. */
export const SkippedOutput = z.object({
  path: z.string(),
  reason: z.enum([
    'symlink',
    'not_a_regular_file',
    'too_large',
    'too_many',
    'total_too_large',
    'quota_exceeded',
    'changed_while_read',
    'unreadable',
    'bad_name',
  ]),
});
export type SkippedOutput = z.infer<typeof SkippedOutput>;

/** Milliseconds of each phase; present once the phase ended. */
export const RunTimings = z.object({
  admit_ms: z.number().optional(),
  queue_ms: z.number().optional(),
  start_ms: z.number().optional(),
  run_ms: z.number().optional(),
  save_ms: z.number().optional(),
  destroy_ms: z.number().optional(),
});
export type RunTimings = z.infer<typeof RunTimings>;

export const Run = z.object({
  id: z.string(),
  state: RunState,
  image: z.string(),
  environment_id: z.string().optional(),
  limits: z.object({
    cpus: z.number().int(),
    ram_mb: z.number().int(),
    storage_gb: z.number().int(),
    timeout_ms: z.number().int(),
  }),
  labels: z.record(z.string(), z.string()).optional(),
  network: NetworkPolicy.optional(),
  exit_code: z.number().int().optional(),
  signal: z.string().optional(),
  oom_killed: z.boolean().optional(),
  /** The head of each stream, at most 256 KiB; see `truncated` and the byte counts. Absent until the command ended. */
  stdout: z.string().optional(),
  stderr: z.string().optional(),
  encoding: Encoding,
  stdout_bytes: z.number().int().optional(),
  stderr_bytes: z.number().int().optional(),
  truncated: z.boolean().optional(),
  lossy: z.boolean().optional(),
  outputs: z.array(RunOutput),
  skipped_outputs: z.array(SkippedOutput).optional(),
  error: z.object({ code: RunErrorCode, message: z.string() }).optional(),
  timings: RunTimings,
  created_at: Timestamp,
  started_at: Timestamp.optional(),
  finished_at: Timestamp.optional(),
  updated_at: Timestamp,
});
export type Run = z.infer<typeof Run>;

export const ListRuns = z.object({ runs: z.array(Run), next_cursor: z.string().optional() });
export type ListRuns = z.infer<typeof ListRuns>;

/**
 * `GET /v1/runs/{id}/events`. The SSE `id` is opaque; send it back as `Last-Event-ID` (or `last_event_id`) to go on
 * without gap or repeat. The stream closes after a terminal state.
 */
export const RunEvent = z.discriminatedUnion('event', [
  z.object({
    event: z.literal('state'),
    run_id: z.string(),
    state: RunState,
    error: z.object({ code: RunErrorCode, message: z.string() }).optional(),
    at: Timestamp,
  }),
  z.object({ event: z.literal('stdout'), run_id: z.string(), data_base64: z.string() }),
  z.object({ event: z.literal('stderr'), run_id: z.string(), data_base64: z.string() }),
  /** Output beyond the host's log bound was dropped from here on; counts are in the result. */
  z.object({ event: z.literal('truncated'), run_id: z.string() }),
  /** The id that the stream was to go on after is not one of this run's: everything comes again, from the beginning. */
  z.object({ event: z.literal('reset'), run_id: z.string() }),
]);
export type RunEvent = z.infer<typeof RunEvent>;

export const UploadedFile = z.object({
  id: z.string(),
  size_bytes: z.number().int(),
  sha256: z.string(),
  created_at: Timestamp,
  expires_at: Timestamp,
});
export type UploadedFile = z.infer<typeof UploadedFile>;

export const Image = z.object({
  name: z.string(),
  digest: z.string(),
  size_bytes: z.number().int(),
  description: z.string().optional(),
});
export type Image = z.infer<typeof Image>;
export const ListImages = z.object({ images: z.array(Image) });
export type ListImages = z.infer<typeof ListImages>;
