import { InvalidArgumentError } from 'commander';
import { parseDurationMs } from './duration.ts';

/** A moment: RFC 3339, a date, or `24h` for so long before now. */
export const parseTime =
  (nowMs: () => number) =>
  (text: string): Date => {
    if (/^\d+(\.\d+)?(ms|s|m|h|d)/.test(text)) return new Date(nowMs() - parseDurationMs(text));
    const at = new Date(text);
    if (!/^\d{4}-\d\d-\d\d/.test(text) || Number.isNaN(at.getTime()))
      throw new InvalidArgumentError('Write a time such as 2026-01-31T12:00:00Z or 2026-01-31, or 24h for a day ago.');
    return at;
  };
