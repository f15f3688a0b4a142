/** Hosts: the machines that VMs run on. Wire shapes are api.md section 1.5. */
import { z } from 'zod';
import { absentIfNull, Labels, Timestamp } from './primitives.ts';

export const hostStates = ['active', 'cordoned', 'draining'] as const;

const amount = absentIfNull(z.number().int().min(0).max(2_147_483_647));

/** What is 0 or absent is filled from what the host agent reports. */
export const DeclaredCapacity = z.object({
  cpus: amount,
  ram_mb: amount,
  storage_gb: amount,
  vm_count: amount,
  arch: absentIfNull(z.string().max(32)),
  gpus: amount,
  gpu_kind: absentIfNull(z.string().max(128)),
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
});

export const Host = z.object({
  id: z.string(),
  url: z.string(),
  state: z.enum(hostStates),
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
