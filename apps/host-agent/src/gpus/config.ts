/** Which of this host's devices VMs may have. */
import { z } from 'zod';

/** `auto`: all that can be passed through; otherwise these alone, by PCI address or, of mediated devices, by uuid. */
export type GpuChoice = 'auto' | 'off' | readonly string[];

export const PCI_ADDRESS = /^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/;
export const DEVICE_UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const isId = (text: string): boolean => PCI_ADDRESS.test(text) || DEVICE_UUID.test(text);

export const Gpus = z
  .string()
  .transform((text): GpuChoice => {
    const lower = text.toLowerCase();
    return lower === 'auto' || lower === 'off' ? lower : lower.split(',').map((each) => each.trim());
  })
  .refine(
    (choice) => typeof choice === 'string' || choice.every(isId),
    'must be auto, off, or PCI addresses such as 0000:65:00.0 separated by commas',
  );

export interface GpuConfig {
  choice: GpuChoice;
  /** Where sysfs, and the nodes of VFIO, are: elsewhere in tests alone. */
  sysfs: string;
  vfio: string;
}

export const DEFAULT_GPUS: GpuConfig = { choice: 'auto', sysfs: '/sys', vfio: '/dev/vfio' };
