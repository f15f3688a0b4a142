/** What every step of driving a run has at hand. */
import type { AppError } from '@fuse/contract';
import type { ObjectStore } from '@fuse/object-store';
import type { Logger } from '@fuse/runtime';
import type { Db } from '../../db/db.ts';
import type { EnvironmentRow, RunRow } from '../../db/schema.ts';
import type { EnvironmentService } from '../../environments/environment-service.ts';
import type { HostClient } from '../../hosts/host-client.ts';
import type { Sealer } from '../../secrets/sealer.ts';
import type { Collection } from '../outputs.ts';
import type { StoredRequest } from '../request.ts';
import { execIdOf } from '../run.ts';
import type { RunHold } from '../run-store.ts';

/** Between two of them everything may be repeated by another process. */
export const checkpoints = [
  'admitted',
  'vm started',
  'files put',
  'marked running',
  'exec started',
  'exec ended',
  'marked saving',
  'outputs saved',
  'ended',
] as const;
export type Checkpoint = (typeof checkpoints)[number];

export interface RunLimitsConfig {
  /** Frame bytes of a run's log that the host keeps; more is counted and dropped. */
  maxLogBytes: number;
  maxOutputFileBytes: number;
  maxOutputTotalBytes: number;
}

export const DEFAULT_RUN_LIMITS: RunLimitsConfig = {
  maxLogBytes: 64 * 1024 * 1024,
  maxOutputFileBytes: 5 * 1024 ** 3,
  maxOutputTotalBytes: 20 * 1024 ** 3,
};

export interface DriveContext {
  db: Db;
  sealer: Sealer;
  environments: EnvironmentService;
  objectStore: ObjectStore;
  log: Logger;
  limits: RunLimitsConfig;
  /** How long ended runs, their outputs included, are kept. */
  retentionMs: number;
  /** A host that does not answer for so long is given up, and with it the runs on it. */
  hostLostAfterMs: number;
  /** Tests stop a driver here. */
  checkpoint: (point: Checkpoint, runId: string) => Promise<void>;
}

export interface Drive {
  readonly hold: RunHold;
  /** Aborted when the hold is lost or this process stops: leave everything as it is. */
  readonly stop: AbortSignal;
  /** Aborted once cancellation was asked for. */
  readonly cancel: AbortSignal;
  /** Whether it was this driver that marked the run `running`: then nobody else can have started the command. */
  markedRunning: boolean;
  /** When this process has just admitted it: not read again. */
  admitted: EnvironmentRow | undefined;
  /** Once known, for the steps that follow. */
  at: Whereabouts | undefined;
  /** Saving that was begun when the command ended, beside reading its result. */
  saving: Promise<Collected> | undefined;
}

/** Where a run's command is. */
export interface Whereabouts {
  host: HostClient;
  environment: EnvironmentRow;
  execId: string;
}

/** `error`: what is missing, and why. */
export interface Collected {
  collected?: Collection;
  error?: AppError;
}

export async function whereaboutsOf(context: DriveContext, drive: Drive, run: RunRow): Promise<Whereabouts> {
  if (drive.at !== undefined) return drive.at;
  const environment = await context.environments.get(context.db.query, environmentUidOf(run));
  if (environment === undefined) throw new Error(`run ${run.id} has no environment`);
  return setWhereabouts(drive, environment, await context.environments.hostOf(environment));
}

export function setWhereabouts(drive: Drive, environment: EnvironmentRow, host: HostClient): Whereabouts {
  drive.at = { host, environment, execId: execIdOf(drive.hold.runId) };
  return drive.at;
}

export const requestOf = (run: RunRow): StoredRequest => run.request as StoredRequest; // written by insertRun, and only there

/** Of a run beyond `queued`. */
export function environmentUidOf(run: RunRow): string {
  if (run.environment_uid === null) throw new Error(`run ${run.id} is ${run.state} and has no environment`);
  return run.environment_uid;
}
