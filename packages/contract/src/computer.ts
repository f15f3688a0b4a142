/**
 * `…/computer`: a display in the environment (api.md 1.3). No image of ours has one yet, so what answers here is that there is none: an action is 503
 * `unavailable` with "is not up" in its message, the status says `up: false`.
 */
import { z } from 'zod';

/** Of `GET …/computer/stream`, an upgrade; raw RFB both ways. */
export const VNC_PROTOCOL = 'fuse-vnc/1';

const required = 'action is required';
/** Further fields are the action's own. */
export const ComputerAction = z.looseObject({
  action: z
    .string({ error: ({ input }) => (input === undefined || input === null ? required : undefined) })
    .min(1, required),
});
export type ComputerAction = z.infer<typeof ComputerAction>;

export const ComputerResult = z.object({ output: z.string().optional(), screenshot: z.string().optional() });
export type ComputerResult = z.infer<typeof ComputerResult>;

export const ComputerStatus = z.object({
  display: z.string().optional(),
  up: z.boolean(),
  width: z.number().int(),
  height: z.number().int(),
  error: z.string().optional(),
});
export type ComputerStatus = z.infer<typeof ComputerStatus>;
