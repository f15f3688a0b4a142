/** What the scheduler decides about one shape. Pure: see schedule.ts. */
import type { GpuHold } from './gpus.ts';

export interface PlacementSpec {
  cpus: number;
  ram_mb: number;
  storage_gb: number;
  image?: string;
  region?: string;
  arch?: string;
  gpus?: number;
  gpu_kind?: string;
  /** Instances of this profile in place of whole ones, in lower case. */
  gpu_profile?: string;
  host_id?: string;
  labels?: Record<string, string>;
  /** It is to have a network card. */
  network?: boolean;
  /** The snapshot that it starts from: where its bytes are comes first, and alone unless they are in the object store. */
  seed?: { snapshotId: string; hostId: string | null; isExported: boolean };
}

/** Of one host: its score when it could take it, else the first gate that it fails. */
export interface Judgement {
  hostId: string;
  score?: number;
  reason?: string;
}

export interface Rejection {
  /**
   * `no_room`: some host could take it when others leave, or when it is active and reachable again. `impossible`: no registered host ever could.
   * `no_such_host`: it is pinned to a host that is not registered.
   */
  kind: 'no_room' | 'impossible' | 'no_such_host';
  message: string;
  /** Of every host, why not. */
  hosts: Judgement[];
  /** What would help. */
  hint?: string;
}

export interface Placed {
  kind: 'placed';
  hostId: string;
  /** Which of the host's it gets, where it wants some. */
  gpus?: GpuHold;
  /** Of every host: the chosen one has the best score of those that have one. */
  hosts: Judgement[];
}

export type Placement = Placed | Rejection;
