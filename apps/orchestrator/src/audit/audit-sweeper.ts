/** Deletes entries of the audit log that are older than they are kept. One process at a time. */
import type { Db } from '../db/db.ts';
import { LeasedLoop, type LeasedLoopOptions } from '../reconciling/leased-loop.ts';
import { sweepAudit } from './audit-store.ts';

export const AUDIT_SWEEP_EVERY_MS = 600_000;

export function auditSweeper(db: Db, keepMs: number, options: Omit<LeasedLoopOptions, 'what'>): LeasedLoop {
  return new LeasedLoop({ ...options, what: 'sweeping the audit log' }, async (signal) => {
    while (!signal.aborted && (await sweepAudit(db.query, keepMs)));
  });
}
