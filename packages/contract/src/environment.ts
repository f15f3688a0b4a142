/** Environments: a VM and its task. Wire shapes are api.md section 1.3; the state table is ours. */
import { z } from 'zod';
import { Argv } from './exec.ts';
import { GivenNetworkPolicy, NetworkConnection, NetworkPolicy } from './network.ts';
import { absentIfNull, EnvVars, Label, Labels, Timestamp } from './primitives.ts';

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
/** With half of it the image `base` runs out of memory while it boots. */
export const MIN_RAM_MB = 256;
export const DEFAULT_IMAGE = 'base';
export const DEFAULT_MAX_RUNTIME_SECONDS = 7_200;
/** A hundred years: what a database can add to a time. */
export const MAX_LIFETIME_SECONDS = 3_153_600_000;

const count = (max: number) => z.number().int().min(0).max(max);

/** In the order in which they are checked. */
export const EnvironmentSpec = z.object({
  cpus: absentIfNull(count(256)),
  ram_mb: absentIfNull(
    count(4_194_304).refine(
      (value) => value === 0 || value >= MIN_RAM_MB,
      `must be 0 (the default) or at least ${MIN_RAM_MB}`,
    ),
  ),
  storage_gb: absentIfNull(count(65_536)),
  region: absentIfNull(z.string().max(128)),
  arch: absentIfNull(z.string().max(32)),
  image: absentIfNull(z.string().max(128)),
  gpus: absentIfNull(count(64)),
  gpu_kind: absentIfNull(z.string().max(128)),
  gpu_profile: absentIfNull(z.string().max(128)),
  host_id: absentIfNull(z.string().max(256)),
  labels: absentIfNull(Labels),
  max_runtime_seconds: absentIfNull(z.number().int().min(0).max(MAX_LIFETIME_SECONDS)),
  idle_timeout_seconds: absentIfNull(
    z
      .number()
      .int()
      .min(0)
      .max(MAX_LIFETIME_SECONDS)
      .refine((value) => value === 0 || value >= 60, 'must be 0 or at least 60'),
  ),
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

export const STARTUP_EXEC_ID = 'startup';
export const STARTUP_DEFAULT_TIMEOUT_SECONDS = 30;
/** Of a create that waits; one with `wait: false` may take as long as it says. */
export const STARTUP_MAX_WAITED_SECONDS = 55;
export const STARTUP_MAX_SECONDS = 604_800;
/** All decoded bytes of `files` together. */
export const MAX_CREATE_FILES_BYTES = 524_288;

/** Evaluated in the guest (api.md 2.6): exactly one of http (2xx and 3xx pass) and exec (exit 0 passes). It reports and never restarts anything. */
export const Healthcheck = z
  .object({
    http: absentIfNull(
      z.object({
        port: z.number().int().min(1).max(65_535),
        path: absentIfNull(z.string().max(2_048).startsWith('/')),
      }),
    ),
    exec: absentIfNull(Argv.refine((argv) => argv.every((arg) => arg.trim() !== ''), 'must not hold a blank argument')),
    /** 0 or absent: the default. */
    interval_seconds: absentIfNull(z.number().int().min(0).max(86_400)),
    timeout_seconds: absentIfNull(z.number().int().min(0).max(86_400)),
    retries: absentIfNull(z.number().int().min(0).max(1_000)),
    start_period_seconds: absentIfNull(z.number().int().min(0).max(86_400)),
  })
  .refine((check) => (check.http === undefined) !== (check.exec === undefined), 'exactly one of http and exec')
  .refine(
    ({ interval_seconds = 0, timeout_seconds = 0 }) => interval_seconds === 0 || timeout_seconds <= interval_seconds,
    { message: 'must not be over interval_seconds', path: ['timeout_seconds'] },
  );
export type Healthcheck = z.infer<typeof Healthcheck>;
export const HEALTHCHECK_DEFAULTS = {
  interval_seconds: 10,
  timeout_seconds: 2,
  retries: 3,
  start_period_seconds: 0,
} as const;

export const Health = z.object({
  state: z.enum(['starting', 'passing', 'failing']),
  since: Timestamp,
  failures: z.number().int().optional(),
  message: z.string().optional(),
});
export type Health = z.infer<typeof Health>;

export const Expose = z.array(z.object({ port: z.number().int().min(1).max(65_535), as: absentIfNull(Label) })).max(64);

const pixels = z.number().int().min(320).max(3_840);
export const Desktop = z.object({ width: pixels, height: pixels });

/** What is put into it and done in it before it counts as running. In the order in which it is checked. */
const startupFields = {
  healthcheck: absentIfNull(Healthcheck),
  /** Recorded; no image of ours has a display (computer.ts). */
  desktop: absentIfNull(Desktop),
  /** Run as `sh -lc` after the files are there; its output is the exec `startup`. A failure or a timeout fails the create. */
  startup_script: absentIfNull(z.string().max(1_048_576)),
  /** 0 or absent: 30. Over 55 only with `wait: false`. */
  startup_script_timeout_seconds: absentIfNull(z.number().int().min(0)),
  /** Absolute path to standard base64; checked in the order of the paths. */
  files: absentIfNull(z.record(z.string(), z.string())),
  expose: absentIfNull(Expose),
  /** Ours. False: 202 at once with `provisioning`; `events` and `GET` tell the rest. Default true: 201 once it runs. */
  wait: absentIfNull(z.boolean()),
};

/** Body of `POST /v1/environments`. */
export const CreateEnvironment = z.object({
  task_id: z.string().min(1, 'task_id is required').max(200),
  spec: absentIfNull(EnvironmentSpec),
  env: absentIfNull(EnvVars),
  /** Ours: the owner's own marks, for lists and people. `spec.labels` choose hosts. */
  labels: absentIfNull(Labels),
  /** Ours: when there is no room, wait so long for it, fairly between tenants, instead of 503 at once. 0 or absent: not at all. */
  queue_timeout_seconds: absentIfNull(z.number().int().min(0).max(86_400)),
  /** Standard base64 of the manifest's JSON: the guest finds it in `/fuse/manifest.json`, and what its machine's `env` says in `/fuse/env`. */
  manifest_inline: absentIfNull(z.string()),
  /** By name: the guest finds them in `/fuse/secrets.json`. All that the manifest refers to must be here. */
  secrets: absentIfNull(z.record(z.string(), z.string())),
  /** Of clients that run an agent of their own in it: recorded. The token is not kept. */
  gateway_url: absentIfNull(z.string().max(2_048)),
  gateway_token: absentIfNull(z.string().max(4_096)),
  ...startupFields,
  /** Starts from this snapshot: its image, shape and variables, unless given here. Excludes `spec.image`. */
  seed_snapshot_id: absentIfNull(z.string().max(128)),
  /** Ours: when its memory cannot be restored where it is placed (another VMM, CPU or kernel), start from its disk alone. */
  fallback: absentIfNull(z.literal('disk')),
  ...lifetimeFields,
  /** Ours: what it may reach (network.ts). Absent: as the snapshot that it starts from had it; else its tenant's default, else the deployment's, which is `none`. */
  network: absentIfNull(GivenNetworkPolicy),
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
  /** Of `expose`: where its tunnels are, as bare `host:port/path`. */
  endpoints: z.array(z.object({ as: z.string().optional(), url: z.string(), port: z.number().int() })).optional(),
  /** With a healthcheck, from the first verdict on. */
  health: Health.optional(),
  /** Ours, from here on. Where its memory and disk came from. */
  seed_snapshot_id: z.string().optional(),
  paused_at: Timestamp.optional(),
  idle_action: z.enum(['destroy', 'pause']).optional(),
  auto_resume: z.boolean().optional(),
  checkpoint_interval_seconds: z.number().int().optional(),
  checkpoint_keep: z.number().int().optional(),
  labels: z.record(z.string(), z.string()).optional(),
  /** When its `max_runtime_seconds` are over. */
  expires_at: Timestamp.optional(),
  /** While it waits for room: why no host has taken it yet. */
  queued: z.object({ since: Timestamp, until: Timestamp, reason: z.string() }).optional(),
  /** Its own policy; maxima of its tenant and the deployment hold beside it. */
  network: NetworkPolicy.optional(),
  /** Whose it is, in a list of all tenants. */
  tenant_id: z.string().optional(),
});
export type Environment = z.infer<typeof Environment>;

export const ListEnvironments = z.object({
  environments: z.array(Environment),
  next_cursor: z.string().optional(),
});
export type ListEnvironments = z.infer<typeof ListEnvironments>;

/**
 * Body of `PATCH /v1/environments/{id}` -> 200 Environment; ours. What is absent stays. 409 once it is going or gone: a lifetime that is over is not renewed,
 * and one that was renewed does not end early.
 */
export const UpdateEnvironment = z.object({
  /** Its lifetime ends so many seconds from now. */
  expires_in_seconds: absentIfNull(z.number().int().min(1, 'must be at least 1').max(MAX_LIFETIME_SECONDS)),
  /** 0: never by itself. */
  idle_timeout_seconds: EnvironmentSpec.shape.idle_timeout_seconds,
  ...lifetimeFields,
  /** All of them, in place of those that it has. */
  labels: absentIfNull(Labels),
  /**
   * In place of the one that it has, and enforced when it is answered: connections that it does not allow are cut. 409 `no_network_card` for one that was started
   * with `none`. 503 `host_unreachable`: it is committed, and enforced as soon as its host answers.
   */
  network: absentIfNull(GivenNetworkPolicy),
});
export type UpdateEnvironment = z.infer<typeof UpdateEnvironment>;

/** Of `GET /v1/environments/{id}/placement`; ours. Why it is where it is, or waits: each host with its score, or the gate that it failed. */
export const PlacementReport = z.object({
  host_id: z.string().optional(),
  at: Timestamp,
  /** Without a host: why none takes it. */
  reason: z.string().optional(),
  hosts: z.array(z.object({ host_id: z.string(), score: z.number().optional(), reason: z.string().optional() })),
});
export type PlacementReport = z.infer<typeof PlacementReport>;

/** Body of `?action=fork`; may be absent. With `count` the answer is `Forks`, without it one Environment. */
export const ForkEnvironment = z.object({
  /** A snapshot of this environment to fork from; absent: a fresh one is taken. */
  reuse_snapshot_id: absentIfNull(z.string().max(128)),
  /** Of the fresh snapshot. */
  comment: absentIfNull(z.string().max(1_024)),
  /** Ours. So many forks of one snapshot: all are admitted or none. */
  count: absentIfNull(z.number().int().min(1).max(MAX_FORKS)),
  /** Ours. Of the forks; absent: as this environment's (with `reuse_snapshot_id`, the snapshot's). */
  network: absentIfNull(GivenNetworkPolicy),
});
export type ForkEnvironment = z.infer<typeof ForkEnvironment>;

export const Forks = z.object({ snapshot_id: z.string(), environments: z.array(Environment) });
export type Forks = z.infer<typeof Forks>;

/** The environment's history, oldest first, as `GET /v1/environments/{id}/events` streams it. */
export const EnvironmentEvent = z.object({
  id: z.string(),
  /**
   * `health`: its verdict became another one; `state` is the environment's as ever. `reset`: as `state`, where the stream was to go on after an event that
   * is not known, or not any more: what came in between is not told. `network`: something was refused.
   */
  event: z.enum(['state', 'health', 'step', 'network', 'reset']),
  vm_id: z.string(),
  state: EnvironmentState,
  url: z.string().optional(),
  error: z.string().optional(),
  /** With `running` after a restore in place: which snapshot it is now. Whatever was connected to it before is cut. */
  restored_from: z.string().optional(),
  /** With `health`. */
  health: Health.optional(),
  /** With `step`: what its start has come to. The other fields are of published clients; a start knows `key` and `duration_ms`. */
  step: z
    .object({
      index: z.number().int(),
      total: z.number().int(),
      key: z.string(),
      duration_ms: z.number().int().optional(),
      exit_code: z.number().int().optional(),
    })
    .optional(),
  /** With `network`. `missed`: so many refusals since the one that was told before are not told. */
  network: NetworkConnection.omit({ sent_bytes: true, received_bytes: true, duration_ms: true })
    .extend({ missed: z.number().int().optional() })
    .optional(),
  updated_at: Timestamp,
});
export type EnvironmentEvent = z.infer<typeof EnvironmentEvent>;

/** Of `GET /v1/events` (SSE; ours): every environment of the caller's tenant (the master without `Fuse-Tenant`: of all), in the order in which they were committed. */
export const FleetEvent = EnvironmentEvent.extend({ tenant_id: z.string() });
export type FleetEvent = z.infer<typeof FleetEvent>;

/** First in such a stream when it cannot go on where it was asked to: events are missing, so look at what there is. It goes on after `id`. */
export const FleetReset = z.object({ id: z.string(), event: z.literal('reset'), updated_at: Timestamp });
export type FleetReset = z.infer<typeof FleetReset>;

export { Label };
