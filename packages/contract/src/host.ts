/**
 * Hosts: the machines that VMs run on. Wire shapes are api.md section 1.5; ours:
 *
 *   POST /v1/hosts/{id}?action=cordon|uncordon|drain|probe|lost (M) -> 204; probe: 200 Host as it is now
 *        drain   nothing new is placed; idle-paused or running environments stay until they end or are moved by their owners; `draining` until uncordon
 *        lost    the operator says that it will not come back: its environments and runs end as `failed` with that reason, its capacity is given back.
 *                409 while it answers, unless ?force=true
 *   POST /v1/host-join-tokens JoinTokenRequest (M) -> 201 JoinToken, shown once
 *   POST /v1/hosts/join       JoinHost, `Authorization: Bearer <join token>` -> 201 JoinedHost: a host agent registers itself
 */
import { z } from 'zod';
import { GpuDevices, MigInstances } from './gpu.ts';
import { absentIfNull, Labels, Timestamp } from './primitives.ts';

/** `unreachable`: unheard of for 30 s; no placements, nothing is destroyed. `lost`: declared so. Both are shown in place of what the operator chose, `desired_state`. */
export const hostStates = ['active', 'cordoned', 'draining', 'unreachable', 'lost'] as const;
export const desiredHostStates = ['active', 'cordoned', 'draining'] as const;

const amount = absentIfNull(z.number().int().min(0).max(2_147_483_647));

/** What is 0 or absent is filled from what the host agent reports. `gpus` and `mig_profiles` are for backend qemu alone. */
export const DeclaredCapacity = z.object({
  cpus: amount,
  ram_mb: amount,
  storage_gb: amount,
  vm_count: amount,
  arch: absentIfNull(z.string().max(32)),
  gpus: amount,
  gpu_kind: absentIfNull(z.string().max(128)),
  /** Profile, such as "1g.10gb", to how many instances. */
  mig_profiles: absentIfNull(z.record(z.string().max(64), z.number().int())),
});

export const RegisterHost = z.object({
  id: z.string().min(1, 'id and url are required').max(256),
  url: z.string().min(1, 'id and url are required').max(2_048),
  token: absentIfNull(z.string().max(4_096)),
  region: absentIfNull(z.string().max(128)),
  backend: absentIfNull(z.enum(['firecracker', 'qemu']).or(z.literal(''))),
  labels: absentIfNull(Labels),
  capacity: absentIfNull(DeclaredCapacity),
});
export type RegisterHost = z.infer<typeof RegisterHost>;

export const HostCapacity = z.object({
  cpus: z.number().int(),
  ram_mb: z.number().int(),
  storage_gb: z.number().int(),
  vm_count: z.number().int(),
  arch: z.string().optional(),
  gpus: z.number().int().optional(),
  gpu_kind: z.string().optional(),
  mig_profiles: z.record(z.string(), z.number().int()).optional(),
  /** Of a host's capacity: what it says that it has. */
  gpu_devices: GpuDevices.optional(),
  mig_instances: MigInstances.optional(),
  /** Of what is allocated: the instances that environments have. */
  mig_instance_uuids: z.array(z.string()).optional(),
});
export type HostCapacity = z.infer<typeof HostCapacity>;

export const Host = z.object({
  id: z.string(),
  url: z.string(),
  state: z.enum(hostStates),
  /** Ours: what the operator chose, whether it can be reached or not. */
  desired_state: z.enum(desiredHostStates).optional(),
  /** Ours: as it last said; creates that would not fit are not placed there. */
  free_storage_gb: z.number().int().optional(),
  /** Ours: why nothing that is to have a network is placed there; absent: it is. */
  no_network: z.string().optional(),
  capacity: HostCapacity,
  /** Reserved by environments that are not gone. */
  allocated: HostCapacity,
  region: z.string().optional(),
  backend: z.string().optional(),
  labels: z.record(z.string(), z.string()).optional(),
  /** In the answer to a registration only. */
  warnings: z.array(z.string()).optional(),
  last_seen: Timestamp,
  created_at: Timestamp,
  updated_at: Timestamp,
});
export type Host = z.infer<typeof Host>;

export const ListHosts = z.object({ hosts: z.array(Host), next_cursor: z.string().optional() });
export type ListHosts = z.infer<typeof ListHosts>;

export const JoinTokenRequest = z.object({
  /** Default one hour. */
  expires_in_seconds: absentIfNull(z.number().int().min(1).max(2_592_000)),
  /** How many hosts may join with it; default 1. */
  uses: absentIfNull(z.number().int().min(1).max(10_000)),
  region: absentIfNull(z.string().max(128)),
  labels: absentIfNull(Labels),
});
export type JoinTokenRequest = z.infer<typeof JoinTokenRequest>;

export const JOIN_TOKEN_PREFIX = 'fuse_join_';
export const JoinToken = z.object({ token: z.string(), expires_at: Timestamp, uses: z.number().int() });
export type JoinToken = z.infer<typeof JoinToken>;

/**
 * As RegisterHost; `token` is what the orchestrator has to show the agent from now on. A host that is known joins again with `Authorization: Bearer <the token that it has>`,
 * which is how it changes its address or its token; with a join token only when it still has that token (409). What the operator chose (cordon, lost) stays.
 */
export const JoinHost = RegisterHost.extend({ token: z.string().min(16).max(4_096) });
export type JoinHost = z.infer<typeof JoinHost>;
export const JoinedHost = z.object({ host: Host, cluster_tag: z.string() });
export type JoinedHost = z.infer<typeof JoinedHost>;
