export interface ExportConfig {
  /** `always`: every snapshot that is ready, asked for or not. */
  when: 'always' | 'on-request';
  /** Exports at once in one process. */
  maxExports: number;
  lookEveryMs: number;
  leaseMs: number;
  /** After so many that failed an export is given up; between them it waits, twice as long each time. */
  maxTries: number;
  firstRetryMs: number;
  collectEveryMs: number;
  /** How often the store is listed for what no row owns. */
  sweepEveryMs: number;
}

export const defaultExportConfig: ExportConfig = {
  when: 'on-request',
  maxExports: 2,
  lookEveryMs: 1_000,
  leaseMs: 30_000,
  maxTries: 10,
  firstRetryMs: 1_000,
  collectEveryMs: 60_000,
  sweepEveryMs: 21_600_000,
};
