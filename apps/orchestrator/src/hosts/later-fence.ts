/** A host's refusal of a leader's call (host-protocol/src/fence.ts). */
import { AppError } from '@fuse/contract';
import { STALE_FENCE } from '@fuse/host-protocol';

/** The fence that the host has seen; undefined: that is not what the error says. */
export function laterFence(error: unknown): number | undefined {
  if (!(error instanceof AppError) || error.details?.reason !== STALE_FENCE) return undefined;
  const seen = Number(error.details.seen);
  return Number.isSafeInteger(seen) ? seen : undefined;
}
