/**
 * Orchestrator <-> host agent: HTTP/1.1 JSON, `Authorization: Bearer <token>` on every route. Errors use contract's envelope.
 * Every mutating call is idempotent by an id that the orchestrator chose, so that any replica can repeat what a dead one began.
 *
 *   GET    /v1/health                          -> 200 {status: "ok"}  (no auth)
 *   GET    /v1/capacity                        -> 200 HostCapacityReport, measured anew each time
 *   GET    /v1/images                          -> 200 {images: HostImage[]}
 *   GET    /v1/vms                             -> 200 {vms: HostVm[]}       (never waits for a VM)
 *   PUT    /v1/vms/{id} CreateVm               -> 201 HostVm, running and handed over; 200 when it exists already with the same tag
 *                                                 400 unknown image, 409 (other tag, or being destroyed), 503 no room / start failed (nothing left behind)
 *   GET    /v1/vms/{id}                        -> 200 HostVm | 404
 *   DELETE /v1/vms/{id}?archive_key=           -> 200 {destroyed: boolean, destroy_ms, archived: boolean, network?: VmNetworkTotals}: gone with every trace, also when
 *                                                 unknown. `network`: what a VM with a card had sent and received at its very end. With archive_key its
 *                                                 execs' records and logs become that object (exec-archive.ts) after its VMM is ended; without any exec there is none.
 *                                                 A store that fails for 10 s is given up, logged, `archived: false`
 *   PUT    /v1/vms/{id}/files GuestFiles       -> 200 {files: [{path, size_bytes, sha256}]}: object store -> guest, or inline
 *   PUT    /v1/vms/{id}/execs/{eid} StartExec  -> 201 HostExec, started; 200 when it exists already (never started twice)
 *                                                 400 `invalid_argument` details.reason=exec_failed when the program cannot be started
 *        ?wait_ms=N&limit=M                     waits for its end, at most N ms (at most 10 000), and answers with its `result` then: one call for a short command
 *   GET    /v1/vms/{id}/execs/{eid}?wait_ms=N  -> 200 HostExec; returns at its end, or after N ms (at most 60 000)
 *   GET    /v1/vms/{id}/execs/{eid}/result?limit=N -> 200 HostExecResult (head of each stream, at most N bytes each) | 409 still running
 *   GET    /v1/vms/{id}/execs                  -> 200 {execs: HostExec[]}, in the order of their start; never asks the guest
 *   GET    /v1/vms/{id}/execs/{eid}/log?offset=N|tail=N&follow=1&heartbeat=1 -> 200 frame stream from byte N of it, or from a frame at most N bytes before
 *                                                 its end (contract/frames.ts), to its end when following; header fuse-log-offset: where it begins. What is not kept is a gap frame.
 *                                                 heartbeat: a heartbeat frame every HEARTBEAT_MS. A follower of an exec with `hold` holds it back
 *   POST   /v1/vms/{id}/execs/{eid}/stdin?offset=N&end=1  raw bytes -> 200 ExecStdin, as the guest's
 *   POST   /v1/vms/{id}/execs/{eid}/signal GuestSignal -> 204
 *   GET    /v1/vms/{id}/execs/{eid}/connect?offset=N|tail=N&rows=&cols=  `Upgrade: fuse-exec/1` -> 101, frames both ways: open, stdout, stderr, gap, heartbeat, exit |
 *                                                 stdin, stdinEnd, signal, resize. With rows and cols it is a viewer of its terminal for as long as it lasts
 *   GET    /v1/vms/{id}/processes              -> 200 ListProcesses;  POST …/processes/{pid}/signal GuestSignal -> 204
 *   GET    /v1/vms/{id}/ports/{port}/connect   `Upgrade: fuse-tunnel-frames/1` -> 101, frames both ways (tunnel-frames.ts); errors as JSON before it
 *   GET    /v1/vms/{id}/file?…  PUT            as the guest's /v1/files, query passed on as it is (parsed by the guest), headers too
 *   POST   /v1/vms/{id}/file/{operation}       as the guest's; the answer is checked against contract's schema here
 *   GET    /v1/vms/{id}/watch?… · GET, PUT /v1/vms/{id}/tar?…   as the guest's
 *   PUT    /v1/vms/{id}/healthcheck Healthcheck -> 204: its verdicts are in HostVm.health from then on. It lives in the guest, and goes with its memory
 *   DELETE /v1/vms/{id}/execs/{eid}            -> 204: process tree killed; the record stays until the VM goes
 *   POST   /v1/vms/{id}/outputs CollectOutputs -> 200 CollectedOutputs: guest -> object store
 *   POST   /v1/vms/{id}/pause                  -> 200 HostVm, paused: memory and disk safe on disk, VMM gone; also when it is paused already. On failure it runs on
 *   POST   /v1/vms/{id}/resume                 -> 200 HostVm, running with a new identity; also when it runs already
 *                                                 409 (dead, starting), 500 integrity_error (its memory is damaged), 503 (not now: it stays paused)
 *   POST   /v1/vms/{id}/restore RestoreVm      -> 200 HostVm, running as of the snapshot; running execs end as `lost`. Once per restore_id. What fails before the old VMM
 *                                                 is ended leaves the VM as it was; after that it is dead
 *
 *   PUT    /v1/vms/{id}/network VmNetwork      -> 204: enforced from now on, what it does not allow is cut. 409 details.reason=no_network_card for a VM that was started without one
 *                                                 and is to have a network now
 *   GET    /v1/vms/{id}/network                -> 200 VmNetworkReport, also of a VM without a card or one that is paused
 *
 *   GET    /v1/snapshots                       -> 200 {snapshots: HostSnapshot[]}   (never waits)
 *   PUT    /v1/vms/{id}/snapshots/{sid} TakeSnapshot -> 201 HostSnapshot, `usable` (or `durable` with ?wait=durable); 200 when it exists. The VM runs on.
 *                                                 409 not running, 503 no disk left (nothing left behind)
 *   GET    /v1/snapshots/{sid}?wait_ms=N       -> 200 HostSnapshot; returns once it is no longer `taking` or `usable`, or after N ms | 404
 *   DELETE /v1/snapshots/{sid}                 -> 200 {deleted, freed_bytes}: also when unknown. VMs and snapshots that share its bytes keep them
 *   POST   /v1/snapshots/{sid}/chunks          -> 200 SnapshotChunks: what an export would consist of (reads and hashes everything)
 *   PUT    /v1/snapshots/{sid}/export ExportSnapshot -> 200 ExportedSnapshot: uploads what is `missing`, then the manifest. Repeating it goes on where it stopped
 *
 * Any call may carry `fuse-fence` (fence.ts): what a cluster's leader does by itself. One that is older than another which was seen here is refused: 409 `conflict`,
 * details.reason=stale_fence, details.seen. Nothing is done then.
 *
 * `exec` state `lost`: the VM died (or the guest forgot the exec): its end is unknown and it must not be run again blindly.
 */
import {
  EnvironmentNetwork,
  GpuDevices,
  GpuText,
  Health,
  MAX_HOST_GPUS,
  MigInstances,
  NetworkConnection,
  NetworkPolicy,
  TerminalSize,
} from '@fuse/contract';
import { z } from 'zod';
import { GuestExecExit } from './guest.ts';

export const EXEC_PROTOCOL = 'fuse-exec/1';

/** What a VM starts from at once. */
export const HostTemplate = z.object({
  image: z.string(),
  cpus: z.number().int(),
  ram_mb: z.number().int(),
  storage_gb: z.number().int(),
  /** For VMs that have a network card. */
  network_card: z.literal(true).optional(),
});
export type HostTemplate = z.infer<typeof HostTemplate>;

export const HostCapacityReport = z.object({
  cpus: z.number().int(),
  ram_mb: z.number().int(),
  /** For all VMs, those that exist included. */
  storage_gb: z.number().int(),
  /** What the disk has left now, less the reserve. */
  free_storage_gb: z.number().int(),
  vm_count: z.number().int(),
  arch: z.enum(['amd64', 'arm64']),
  /** That can be passed through to VMs, held or not. */
  gpus: z.number().int().min(0).max(MAX_HOST_GPUS),
  /** The model of all of them; '': they differ, it is not known, or there are none. */
  gpu_kind: GpuText,
  /** One by one; absent: none, or it does not tell. */
  gpu_devices: GpuDevices.optional(),
  mig_instances: MigInstances.optional(),
  /** What boots VMs here: "firecracker", "qemu". */
  backend: z.string(),
  accelerator: z.enum(['kvm', 'tcg']),
  /** Whether each VMM has a user, a root and limits of its own; absent: it does not tell. */
  confined: z.boolean().optional(),
  templates: z.array(HostTemplate),
  /** Why it can give no VM a network card, as the end of "host X …"; absent: it can. Nothing that is to have a network is placed there. */
  no_network: z.string().max(512).optional(),
});
export type HostCapacityReport = z.infer<typeof HostCapacityReport>;

export const HostImage = z.object({
  name: z.string(),
  digest: z.string(),
  size_bytes: z.number().int(),
  description: z.string().optional(),
});
export type HostImage = z.infer<typeof HostImage>;

export const Shape = z.object({
  cpus: z.number().int().positive(),
  ram_mb: z.number().int().positive(),
  storage_gb: z.number().int().positive(),
});
export type Shape = z.infer<typeof Shape>;

export const VmId = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, 'must be 1 to 63 lower-case letters, digits or "-"');

/** A snapshot to start from: this host's own, or, when it is not here, the one whose manifest is in the object store. */
export const SnapshotSource = z.object({
  snapshot_id: z.string(),
  manifest_key: z.string().optional(),
  /** When memory was saved by another VMM, CPU model or kernel: boot from its disk instead of refusing (409, details.reason=incompatible). */
  fallback: z.literal('disk').optional(),
});
export type SnapshotSource = z.infer<typeof SnapshotSource>;

/** Each of the policies must allow (the environment's own, its tenant's ceiling). Kept with the VM through pause, resume and restore. */
export const VmNetwork = z.object({ policies: z.array(NetworkPolicy).min(1).max(4) });
export type VmNetwork = z.infer<typeof VmNetwork>;

export const VmNetworkReport = EnvironmentNetwork.omit({ policy: true, tenant_max: true, deployment_max: true }).extend(
  {
    policies: z.array(NetworkPolicy),
    /** Packets that were never a connection, by why they were dropped or refused: the counters of the host agent's network/slot.nft, of the present slot. */
    dropped_packets: z.record(z.string(), z.number().int()).optional(),
  },
);
export type VmNetworkReport = z.infer<typeof VmNetworkReport>;

export const VmNetworkTotals = VmNetworkReport.pick({
  sent_bytes: true,
  received_bytes: true,
  allowed_count: true,
  refused_count: true,
});
export type VmNetworkTotals = z.infer<typeof VmNetworkTotals>;

/** What an environment holds of its host's GPUs, and its VM gets: `gpus` whole ones, or instances of `profile`. */
export const VmGpus = z.object({
  gpus: z.number().int().positive(),
  profile: z.string().optional(),
  /** By their uuid, or, of a device without one, by its pci_bus_id; fewer than `gpus` on a host that does not tell its devices. */
  devices: z.array(z.string().min(1).max(256)).max(64),
});
export type VmGpus = z.infer<typeof VmGpus>;

export const CreateVm = z.object({
  image: z.string(),
  shape: Shape,
  /** Ownership: the cluster whose VM this is. Only its own orchestrators may touch it. */
  tag: z.string().min(1).max(128),
  hostname: z.string().regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/),
  /** Environment variables of every exec in this VM. */
  env: z.record(z.string(), z.string()).optional(),
  /** From the template when there is one; `cold` forces a boot (benchmarks, tests). */
  start: z.enum(['auto', 'cold']).optional(),
  /** Instead of a template. Image and shape must be the snapshot's (400). 404 when it is nowhere, 500 integrity_error when it is damaged. */
  seed: SnapshotSource.optional(),
  /**
   * Absent, or where one of the policies is `none`: the VM has no network card. A VM with a seed has one if the snapshot's had; 409 details.reason=no_network_card
   * when it is to have a network without (a seed with `fallback: disk` boots from its disk instead).
   */
  network: VmNetwork.optional(),
  /**
   * Passed through: it boots, from no template, and is never paused, snapshotted or restored (409 details.reason=gpus). With a seed: from its disk, which needs `fallback: disk`.
   * 503 when one of them is not here, or another VM has it.
   */
  gpus: VmGpus.optional(),
});
export type CreateVm = z.infer<typeof CreateVm>;

export const hostVmStates = ['starting', 'running', 'pausing', 'paused', 'resuming', 'destroying', 'dead'] as const;
export const HostVm = z.object({
  id: z.string(),
  state: z.enum(hostVmStates),
  tag: z.string(),
  image: z.string(),
  shape: Shape,
  created_at: z.string(),
  /** Why a dead VM died. */
  error: z.string().optional(),
  /** The last restore in place. */
  restore_id: z.string().optional(),
  /** Fell back to the disk of its seed. */
  disk_only: z.boolean().optional(),
  /** The last verdict of its healthcheck, at most some seconds old. */
  health: Health.optional(),
  /**
   * Of a VM with a network card; `latest_refused` as gateway.ts has it. Bytes and `refused_seq` never fall while the VM exists, whatever became of gateways and
   * incarnations meanwhile: the orchestrator bills and tells what is above the highest that it has seen.
   */
  network: z
    .object({
      policies: z.array(NetworkPolicy),
      sent_bytes: z.number().int(),
      received_bytes: z.number().int(),
      refused_seq: z.number().int(),
      latest_refused: z.array(NetworkConnection.extend({ seq: z.number().int() })),
    })
    .optional(),
  timings: z
    .object({
      memory_ms: z.number().optional(),
      template_ms: z.number().optional(),
      disk_ms: z.number().optional(),
      network_ms: z.number().optional(),
      vmm_ms: z.number().optional(),
      channel_ms: z.number().optional(),
      identity_ms: z.number().optional(),
      total_ms: z.number().optional(),
    })
    .optional(),
});
export type HostVm = z.infer<typeof HostVm>;

export const RestoreVm = SnapshotSource.extend({ restore_id: z.string().min(1).max(128) });
export type RestoreVm = z.infer<typeof RestoreVm>;

export const SnapshotId = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,62}$/, 'must be 1 to 63 lower-case letters, digits or "-"');

export const TakeSnapshot = z.object({
  tag: z.string().min(1).max(128),
  include_memory: z.boolean(),
});
export type TakeSnapshot = z.infer<typeof TakeSnapshot>;

/**
 * `taking`: not usable yet. `usable`: VMs may start from it on this host while it is being flushed and hashed. `durable`: flushed with its
 * directory, digests recorded. `broken`: `error` says why; nothing starts from it.
 */
export const HostSnapshot = z.object({
  id: z.string(),
  tag: z.string(),
  state: z.enum(['taking', 'usable', 'durable', 'broken']),
  vm_id: z.string(),
  image: z.string(),
  shape: Shape,
  include_memory: z.boolean(),
  /** Its VM had a network card. */
  network_card: z.boolean().optional(),
  /** The snapshot of the same VM, or the one it was started from, that it stores the difference to. */
  parent_id: z.string().optional(),
  created_at: z.string(),
  pause_ms: z.number().optional(),
  /** Non-hole bytes of memory, devices and disk. */
  size_bytes: z.number().int().optional(),
  /** Of those, stored for this snapshot alone. */
  stored_bytes: z.number().int().optional(),
  /** Hex sha256 over the parts' digests; with `durable`. */
  digest: z.string().optional(),
  error: z.string().optional(),
});
export type HostSnapshot = z.infer<typeof HostSnapshot>;

export const ChunkDigest = z.string().regex(/^[0-9a-f]{64}$/);

export const SnapshotChunks = z.object({
  /** Distinct content; holes and zeros are in none. */
  chunks: z.array(z.object({ sha256: ChunkDigest, size_bytes: z.number().int() })),
});
export type SnapshotChunks = z.infer<typeof SnapshotChunks>;

/** Chunks are objects `<chunk_prefix>/<first two hex digits>/<sha256>`, compressed; the manifest names them in order. */
export const ExportSnapshot = z.object({
  chunk_prefix: z.string(),
  manifest_key: z.string(),
  missing: z.array(ChunkDigest),
});
export type ExportSnapshot = z.infer<typeof ExportSnapshot>;

export const ExportedSnapshot = z.object({
  /** Of each chunk that was uploaded now. */
  uploaded: z.array(z.object({ sha256: ChunkDigest, stored_bytes: z.number().int() })),
  manifest_bytes: z.number().int(),
});
export type ExportedSnapshot = z.infer<typeof ExportedSnapshot>;

export const GuestFiles = z.object({
  files: z
    .array(
      z.object({
        path: z.string(),
        mode: z.string().optional(),
        /** Where the bytes are: exactly one of the two. */
        object_key: z.string().optional(),
        content_base64: z.string().optional(),
        sha256: z.string().optional(),
      }),
    )
    .max(2_000),
});
export type GuestFiles = z.infer<typeof GuestFiles>;

export const StartExec = z.object({
  argv: z.array(z.string()).min(1),
  env: z.record(z.string(), z.string()).optional(),
  cwd: z.string().optional(),
  user: z.string().optional(),
  timeout_ms: z.number().int().nonnegative(),
  /** stdin: from the object store, or these bytes, or by …/stdin and …/connect until its end; none of them: /dev/null. At most one, but `open` may follow `base64`. */
  stdin_object_key: z.string().optional(),
  stdin_base64: z.string().optional(),
  stdin_open: z.boolean().optional(),
  kill_on_exit: z.boolean().optional(),
  tty: TerminalSize.optional(),
  login: z.boolean().optional(),
  /** Frame bytes kept on the host. */
  max_log_bytes: z.number().int().positive(),
  /**
   * `head` (default): the first max_log_bytes; what comes after is read, counted and dropped, and offsets are of the log.
   * `ends`: the first half and the last half of them (in segments that rotate); offsets are of the guest's frame stream, what is not kept is a gap.
   */
  keep: z.enum(['head', 'ends']).optional(),
  /**
   * With `ends`: while somebody follows the log, the command waits rather than that bytes are dropped which its slowest follower has not read. A follower that takes
   * nothing for 10 s holds nothing any more. `until_followed_ms`: when there has been no follower yet, or the last one was cut off (it went before the end), it
   * is held for so long as if there were one.
   */
  hold: z.object({ until_followed_ms: z.number().int().nonnegative() }).optional(),
  /** Of a terminal that belongs to one connection: it is killed with its tree once nobody has watched it for so long, whatever became of who began it. */
  kill_unwatched_ms: z.number().int().positive().optional(),
});
export type StartExec = z.infer<typeof StartExec>;

export const HostExec = z.object({
  id: z.string(),
  state: z.enum(['running', 'exited', 'lost']),
  exit: GuestExecExit.optional(),
  /** As given, cut for display. */
  argv: z.array(z.string()),
  cwd: z.string().optional(),
  user: z.string().optional(),
  tty: TerminalSize.extend({ viewers: z.number().int() }).optional(),
  stdin_open: z.boolean(),
  created_at: z.string(),
  ended_at: z.string().optional(),
  /** Offset of the log's end. */
  log_bytes: z.number().int(),
  /** With `keep: ends`: what is dropped. */
  log_gap: z.object({ from: z.number().int(), to: z.number().int() }).optional(),
  log_truncated: z.boolean(),
  /** With `lost`. */
  error: z.string().optional(),
  /** Head of each stream; only in the answer to a PUT that waited, once it exited. */
  result: z.object({ stdout_base64: z.string(), stderr_base64: z.string(), truncated: z.boolean() }).optional(),
});
export type HostExec = z.infer<typeof HostExec>;

export const HostExecResult = z.object({
  exec: HostExec,
  stdout_base64: z.string(),
  stderr_base64: z.string(),
  /** Whether the base64 fields hold less than the command wrote. */
  truncated: z.boolean(),
});
export type HostExecResult = z.infer<typeof HostExecResult>;

export const CollectOutputs = z.object({
  cwd: z.string(),
  globs: z.array(z.string()),
  /** Object keys are `<key_prefix>/<number>`; a guest's name never becomes part of a key. */
  key_prefix: z.string(),
  max_files: z.number().int().positive(),
  max_file_bytes: z.number().int().positive(),
  max_total_bytes: z.number().int().positive(),
  /** Also save this exec's streams as the logs `.fuse/stdout.log` and `.fuse/stderr.log`, and its frame stream at `<key_prefix>/frames`. */
  exec_id: z.string().optional(),
});
export type CollectOutputs = z.infer<typeof CollectOutputs>;

export const CollectedOutputs = z.object({
  outputs: z.array(
    z.object({
      path: z.string(),
      kind: z.enum(['file', 'log']),
      object_key: z.string(),
      size_bytes: z.number().int(),
      sha256: z.string(),
    }),
  ),
  skipped: z.array(
    z.object({
      path: z.string(),
      reason: z.enum([
        'symlink',
        'not_a_regular_file',
        'too_large',
        'too_many',
        'total_too_large',
        'changed_while_read',
        'unreadable',
        'bad_name',
      ]),
    }),
  ),
  frames_object_key: z.string().optional(),
});
export type CollectedOutputs = z.infer<typeof CollectedOutputs>;
