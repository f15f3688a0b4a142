/**
 * How fast this host's time stamp counter ticks. Under TCG a guest reads the host's counter as it is, and its kernel, which times it against an
 * emulated clock while it boots, can be wrong by a factor of three on a busy host: for ever, and in every VM of the template.
 */
import { readFileSync } from 'node:fs';

/** The kernel derives BogoMIPS from the counter's rate: twice the MHz. Undefined where it says none. */
export function tscKhzFrom(cpuinfo: string): number | undefined {
  const bogomips = /^bogomips\s*:\s*(\d+\.\d+)$/im.exec(cpuinfo)?.[1];
  if (bogomips === undefined) return undefined;
  const khz = Math.round(Number(bogomips) * 500);
  return khz > 0 ? khz : undefined;
}

export const hostTscKhz = (): number | undefined => tscKhzFrom(readFileSync('/proc/cpuinfo', 'utf8'));
