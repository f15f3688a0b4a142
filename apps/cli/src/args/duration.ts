import { InvalidArgumentError } from 'commander';

const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const PART = /(\d+(?:\.\d+)?)(ms|s|m|h|d)/g;

/** `500ms`, `30s`, `5m`, `1h30m` in milliseconds; more than nothing. */
export function parseDurationMs(text: string): number {
  const parts = [...text.matchAll(PART)];
  const whole = parts.map(([part]) => part).join('') === text && parts.length > 0;
  const ms = parts.reduce((sum, [, value, unit]) => sum + Number(value) * unitMs[unit as keyof typeof unitMs], 0); // PART takes no other unit
  if (!whole || !Number.isFinite(ms) || Math.round(ms) < 1)
    throw new InvalidArgumentError('Write a time with its unit, such as 500ms, 30s, 5m or 1h30m.');
  return Math.round(ms);
}

/** The same in whole seconds, rounded up. */
export const parseDurationSeconds = (text: string): number => Math.ceil(parseDurationMs(text) / 1_000);

/** Seconds without a unit, 0 among them, or a time with its unit. */
export const parseSecondsOrDuration = (text: string): number =>
  /^\d{1,12}$/.test(text) ? Number(text) : parseDurationSeconds(text);
