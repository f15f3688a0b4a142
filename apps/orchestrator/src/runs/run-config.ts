/** What an operator may set about runs and uploads. */
import { DEFAULT_FILE_LIFETIME_MS, DEFAULT_MAX_FILE_BYTES } from '../files/file-service.ts';
import { DEFAULT_RUN_LIMITS, type RunLimitsConfig } from './driving/drive.ts';
import { LEASE_MS } from './run-store.ts';

export interface RunConfig {
  /** Runs that this process drives at a time; more wait in the queue. */
  maxRuns: number;
  /** How long an ended run, its outputs included, is kept. */
  retentionMs: number;
  limits: RunLimitsConfig;
  /** A host that does not answer for so long is given up, and with it the runs on it. */
  hostLostAfterMs: number;
  leaseMs: number;
  maxFileBytes: number;
  /** How long an upload is kept that no run waits for. */
  fileLifetimeMs: number;
  collectEveryMs: number;
  sweepEveryMs: number;
}

export const defaultRunConfig: RunConfig = {
  maxRuns: 64,
  retentionMs: 7 * 86_400_000,
  limits: DEFAULT_RUN_LIMITS,
  hostLostAfterMs: 60_000,
  leaseMs: LEASE_MS,
  maxFileBytes: DEFAULT_MAX_FILE_BYTES,
  fileLifetimeMs: DEFAULT_FILE_LIFETIME_MS,
  collectEveryMs: 60_000,
  sweepEveryMs: 86_400_000,
};
