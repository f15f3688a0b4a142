/** Which VMM runs the VMs of this host, and with which kernel. */
import { AppError } from '@fuse/contract';
import { z } from 'zod';
import type { ConfinementOptions } from '../confinement/confinement.ts';
import { confinementConfigOf, confinementVariables } from '../confinement/confinement-config.ts';

export const vmmChoices = ['auto', 'firecracker', 'qemu'] as const;
export type VmmChoice = (typeof vmmChoices)[number];

export interface VmmConfig {
  /** `auto`: Firecracker where it is installed and a VM boots in it. */
  choice: VmmChoice;
  /** In place of the one that set-up built. */
  kernelPath?: string | undefined;
  firecrackerPath?: string | undefined;
  jailerPath?: string | undefined;
}

export const DEFAULT_VMM: VmmConfig = { choice: 'auto' };

const absolutePath = z.string().startsWith('/', 'must be an absolute path');

export const vmmVariables = {
  FUSE_VMM: z.enum(vmmChoices).optional(),
  FUSE_KERNEL: absolutePath.optional(),
  FUSE_FIRECRACKER: absolutePath.optional(),
  FUSE_JAILER: absolutePath.optional(),
};
const VmmVariables = z.object(vmmVariables);

export const vmmConfigOf = (env: z.infer<typeof VmmVariables>): VmmConfig => ({
  choice: env.FUSE_VMM ?? DEFAULT_VMM.choice,
  kernelPath: env.FUSE_KERNEL,
  firecrackerPath: env.FUSE_FIRECRACKER,
  jailerPath: env.FUSE_JAILER,
});

/** For programs that need no more of the configuration than what VMs run in. */
export function vmmConfigFromEnv(
  variables: Record<string, string | undefined>,
): VmmConfig & { confinement: ConfinementOptions } {
  const given = Object.fromEntries(Object.entries(variables).filter(([, value]) => value !== ''));
  const parsed = VmmVariables.extend(confinementVariables).safeParse(given);
  if (parsed.success) return { ...vmmConfigOf(parsed.data), confinement: confinementConfigOf(parsed.data) };
  const lines = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
  throw new AppError('invalid_argument', lines.join('\n'));
}
