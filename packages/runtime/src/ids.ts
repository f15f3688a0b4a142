import { randomBytes } from 'node:crypto';

/** Lower-case, sortable by creation to the millisecond, 80 random bits: `<prefix>-<9 base36 time><16 hex…>`. Safe as host name and directory name. */
export function newId(prefix: string, nowMs: number = Date.now()): string {
  return `${prefix}-${nowMs.toString(36).padStart(9, '0')}${randomBytes(10).toString('hex')}`;
}

export const newRequestId = (): string => `req_${randomBytes(16).toString('hex')}`;
