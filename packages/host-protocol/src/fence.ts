/**
 * Header `fuse-fence: <n> <cluster tag>`: the calls that a cluster's leader makes by itself carry the fence of its lease, which grows whenever the lease changes hands. A leader that slept
 * through its end is told apart by it.
 */
export const FENCE_HEADER = 'fuse-fence';
export const STALE_FENCE = 'stale_fence';

export interface Fence {
  /** The cluster's: each counts by itself. */
  tag: string;
  value: number;
}

const FENCE = /^(\d{1,15}) (\S{1,128})$/;

export const formatFence = ({ tag, value }: Fence): string => `${value} ${tag}`;

/** Undefined: it is none. */
export function parseFence(header: string): Fence | undefined {
  const [, value, tag] = FENCE.exec(header) ?? [];
  return value === undefined || tag === undefined ? undefined : { tag, value: Number(value) };
}
