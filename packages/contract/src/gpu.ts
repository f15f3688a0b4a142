/** What a host has that can be passed through to a VM: whole GPUs, and instances that its operator has carved of one (NVIDIA's MIG). Strings are the host's, and bounded. */
import { z } from 'zod';

/** What no text of ours may hold, databases cannot: NUL, and half of a surrogate pair. */
export const GpuText = z
  .string()
  .max(256)
  .refine((value) => !/[\0\p{Surrogate}]/u.test(value), 'must not hold NUL or half a character');
const text = GpuText.optional();

export const GpuDevice = z.object({
  uuid: text,
  model: text,
  pci_bus_id: text,
  memory_mb: z.number().int().optional(),
  driver_version: text,
  cuda_version: text,
  compute_cap: text,
  mig_capable: z.boolean().optional(),
  /** "Enabled": it is given away in instances, never as a whole. */
  mig_mode: text,
  /** Devices of one group go to one VM, or to none. */
  iommu_group: text,
});
export type GpuDevice = z.infer<typeof GpuDevice>;

export const MigInstance = z.object({ uuid: text, profile: text, kind: text, parent_gpu_uuid: text });
export type MigInstance = z.infer<typeof MigInstance>;

export const MAX_HOST_GPUS = 256;
export const GpuDevices = z.array(GpuDevice).max(MAX_HOST_GPUS);
export const MigInstances = z.array(MigInstance).max(MAX_HOST_GPUS);

/** Any case; one spelling of it is lower case. */
export const MIG_PROFILE = /^[1-7]g\.\d+gb(\+me)?$/i;
