/** Environments: a VM and its task. Wire shapes are api.md section 1.3; the state table is ours. */
import { z } from 'zod';
import { absentIfNull, Encoding, EnvVars, GuestPath, Label, Labels, Timestamp } from './primitives.ts';

/**
 * Every state and the states that may follow it.
 * `destroyed` and `failed` are never listed: a row that reaches them is kept only for its result and events.
 */
export const environmentTransitions = {
  provisioning: ['running', 'destroying', 'failed'],
  // `resuming` from `running`: restored in place.
  running: ['draining', 'pausing', 'resuming', 'destroying', 'failed'],
  draining: ['destroying', 'failed'],
  pausing: ['paused', 'running', 'destroying', 'failed'],
  paused: ['resuming', 'destroying', 'failed'],
  resuming: ['running', 'paused', 'destroying', 'failed'],
  destroying: ['destroyed'],
  destroyed: [],
  failed: [],
} as const satisfies Record<string, readonly string[]>;

export type EnvironmentState = keyof typeof environmentTransitions;
export const environmentStates = Object.keys(environmentTransitions) as [EnvironmentState, ...EnvironmentState[]];
export const EnvironmentState = z.enum(environmentStates);

export function canBecome(from: EnvironmentState, to: EnvironmentState): boolean {
  return (environmentTransitions[from] as readonly string[]).includes(to);
}

export const DEFAULT_SHAPE = { cpus: 1, ram_mb: 512, storage_gb: 2 } as const;
export const DEFAULT_IMAGE = 'base';
export const DEFAULT_MAX_RUNTIME_SECONDS = 7_200;

const count = (max: number) => z.number().int().min(0).max(max);

export const EnvironmentSpec = z.object({
  cpus: absentIfNull(count(256)),
  ram_mb: absentIfNull(count(4_194_304)),
  storage_gb: absentIfNull(count(65_536)),
  region: absentIfNull(z.string().max(128)),
  arch: absentIfNull(z.string().max(32)),
  max_runtime_seconds: absentIfNull(z.number().int().min(0)),
  idle_timeout_seconds: absentIfNull(
    z
      .number()
      .int()
      .min(0)
      .refine((value) => value === 0 || value >= 60, 'must be 0 or at least 60'),
  ),
  image: absentIfNull(z.string().max(128)),
  gpus: absentIfNull(count(64)),
  gpu_kind: absentIfNull(z.string().max(128)),
  gpu_profile: absentIfNull(z.string().max(128)),
  host_id: absentIfNull(z.string().max(256)),
  labels: absentIfNull(Labels),
});
export type EnvironmentSpec = z.infer<typeof EnvironmentSpec>;

export const MIN_CHECKPOINT_INTERVAL_SECONDS = 10;
export const DEFAULT_CHECKPOINT_KEEP = 3;
export const MAX_FORKS = 100;

/** Ours: what happens to an environment by itself. */
const lifetimeFields = {
  /** On `idle_timeout_seconds`: `destroy` (default) or `pause`. */
  idle_action: absentIfNull(z.enum(['destroy', 'pause'])),
  /** An exec or attach on the paused environment resumes it. Default false: 409. */
  auto_resume: absentIfNull(z.boolean()),
  /** Snapshots it by itself this often while it runs; 0 or absent: never. */
  checkpoint_interval_seconds: absentIfNull(
    z
      .number()
      .int()
      .min(0)
      .max(86_400)
      .refine(
        (value) => value === 0 || value >= MIN_CHECKPOINT_INTERVAL_SECONDS,
        `must be 0 or at least ${MIN_CHECKPOINT_INTERVAL_SECONDS}`,
      ),
  ),
  /** Checkpoints that are kept, the newest; default 3. */
  checkpoint_keep: absentIfNull(z.number().int().min(1).max(100)),
};

/**
 * Body of `POST /v1/environments`. Fields that this version cannot honour yet are parsed as `unknown`
 * and refused by name (501), never ignored.
 */
export const CreateEnvironment = z.object({
  task_id: z.string().min(1, 'task_id is required').max(200),
  spec: absentIfNull(EnvironmentSpec),
  env: absentIfNull(EnvVars),
  manifest_inline: z.unknown().optional(),
  secrets: z.unknown().optional(),
  startup_script: z.unknown().optional(),
  startup_script_timeout_seconds: z.unknown().optional(),
  files: z.unknown().optional(),
  gateway_url: z.unknown().optional(),
  gateway_token: z.unknown().optional(),
  expose: z.unknown().optional(),
  healthcheck: z.unknown().optional(),
  desktop: z.unknown().optional(),
  /** Starts from this snapshot: its image, shape and variables, unless given here. Excludes `spec.image`. */
  seed_snapshot_id: absentIfNull(z.string().max(128)),
  /** Ours: when its memory cannot be restored where it is placed (another VMM, CPU or kernel), start from its disk alone. */
  fallback: absentIfNull(z.literal('disk')),
  ...lifetimeFields,
});
export type CreateEnvironment = z.infer<typeof CreateEnvironment>;

export const Environment = z.object({
  id: z.string(),
  state: EnvironmentState,
  task_id: z.string(),
  host_id: z.string().optional(),
  url: z.string(),
  spec: EnvironmentSpec,
  created_at: Timestamp,
  updated_at: Timestamp,
  error: z.string().optional(),
  /** Ours, from here on. Where its memory and disk came from. */
  seed_snapshot_id: z.string().optional(),
  paused_at: Timestamp.optional(),
  idle_action: z.enum(['destroy', 'pause']).optional(),
  auto_resume: z.boolean().optional(),
  checkpoint_interval_seconds: z.number().int().optional(),
  checkpoint_keep: z.number().int().optional(),
});
export type Environment = z.infer<typeof Environment>;

export const ListEnvironments = z.object({
  environments: z.array(Environment),
  next_cursor: z.string().optional(),
});
export type ListEnvironments = z.infer<typeof ListEnvironments>;

/** Body of `?action=fork`; may be absent. With `count` the answer is `Forks`, without it one Environment. */
export const ForkEnvironment = z.object({
  /** A snapshot of this environment to fork from; absent: a fresh one is taken. */
  reuse_snapshot_id: absentIfNull(z.string().max(128)),
  /** Of the fresh snapshot. */
  comment: absentIfNull(z.string().max(1_024)),
  /** Ours. So many forks of one snapshot: all are admitted or none. */
  count: absentIfNull(z.number().int().min(1).max(MAX_FORKS)),
});
export type ForkEnvironment = z.infer<typeof ForkEnvironment>;

export const Forks = z.object({ snapshot_id: z.string(), environments: z.array(Environment) });
export type Forks = z.infer<typeof Forks>;

/** The environment's history, oldest first, as `GET /v1/environments/{id}/events` streams it. */
export const EnvironmentEvent = z.object({
  id: z.string(),
  event: z.literal('state'),
  vm_id: z.string(),
  state: EnvironmentState,
  url: z.string().optional(),
  error: z.string().optional(),
  /** With `running` after a restore in place: which snapshot it is now. Whatever was connected to it before is cut. */
  restored_from: z.string().optional(),
  updated_at: Timestamp,
});
export type EnvironmentEvent = z.infer<typeof EnvironmentEvent>;

export const EXEC_DEFAULT_TIMEOUT_MS = 60_000;
export const EXEC_MAX_TIMEOUT_MS = 600_000;

export const Argv = z
  .array(
    z
      .string()
      .max(131_072)
      .refine((arg) => !arg.includes('\0'), 'must not hold NUL'),
  )
  .min(1)
  .max(4096)
  .refine((argv) => argv[0] !== '', 'the program name must not be empty');

/** Body of `?action=exec`: exactly one of `cmd` and `shell` (→ `sh -lc`). `timeout_ms` is clamped to 600 000. */
export const ExecRequest = z.object({
  cmd: absentIfNull(z.array(z.string()).max(4096)),
  shell: absentIfNull(z.string().max(1_048_576)),
  timeout_ms: absentIfNull(z.number().int().min(0)),
  env: absentIfNull(EnvVars),
  cwd: absentIfNull(GuestPath.or(z.literal('/'))),
  user: absentIfNull(z.string().regex(/^[a-z_][a-z0-9_-]{0,31}$|^\d{1,9}$/, 'must be a user name or a numeric uid')),
  encoding: absentIfNull(Encoding),
});
export type ExecRequest = z.infer<typeof ExecRequest>;

/**
 * `stdout` and `stderr` are always present; with `encoding: "base64"` they are base64 of the exact bytes, with
 * `utf8` (the default) invalid sequences become U+FFFD and `lossy` says so. Each stream is bounded: `truncated` names what was cut,
 * the `*_bytes` counts are of everything that the command wrote.
 */
export const ExecResult = z.object({
  exec_id: z.string(),
  exit_code: z.number().int(),
  stdout: z.string(),
  stderr: z.string(),
  encoding: Encoding,
  stdout_bytes: z.number().int(),
  stderr_bytes: z.number().int(),
  truncated: z.boolean(),
  lossy: z.boolean().optional(),
  signal: z.string().optional(),
  timed_out: z.boolean(),
  oom_killed: z.boolean(),
  duration_ms: z.number().int(),
});
export type ExecResult = z.infer<typeof ExecResult>;

export { Label };
