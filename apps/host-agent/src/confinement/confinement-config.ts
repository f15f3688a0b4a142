/** Settings of the confinement, and how they are written. */
import { z } from 'zod';
import { type ConfinementOptions, confinementModes, DEFAULT_CONFINEMENT } from './confinement.ts';

export const confinementVariables = {
  FUSE_CONFINEMENT: z.enum(confinementModes).optional(),
  FUSE_VMM_UID_BASE: z
    .string()
    .regex(/^[1-9]\d{0,8}$/, 'must be a whole number above 0')
    .transform(Number)
    .refine((uid) => uid >= 1_000, 'must be at least 1000: those below are of the system')
    .optional(),
};
const ConfinementVariables = z.object(confinementVariables);

export const confinementConfigOf = (env: z.infer<typeof ConfinementVariables>): ConfinementOptions => ({
  mode: env.FUSE_CONFINEMENT ?? DEFAULT_CONFINEMENT.mode,
  uidBase: env.FUSE_VMM_UID_BASE ?? DEFAULT_CONFINEMENT.uidBase,
});
