import type { UsageHistory } from '@fuse/sdk';
import { formatBytes, table } from './format.ts';

export const amountText = (name: string, amount: number): string =>
  name.endsWith('_bytes') ? formatBytes(amount) : String(amount);

const HOUR_SECONDS = 3_600;
const GIB_HOUR_BYTE_SECONDS = 1_073_741_824 * HOUR_SECONDS;

/** In hours, which people can tell apart from one another; the JSON has seconds. */
export function usageHistoryText({ hours, total }: UsageHistory): string {
  const row = (name: string, each: UsageHistory['total']): string[] => [
    name,
    (each.vcpu_seconds / HOUR_SECONDS).toFixed(3),
    (each.gib_seconds / HOUR_SECONDS).toFixed(3),
    (each.stored_byte_seconds / GIB_HOUR_BYTE_SECONDS).toFixed(3),
    formatBytes(each.egress_bytes),
  ];
  return table(
    ['HOUR', 'VCPU HOURS', 'GIB HOURS', 'STORED GIB HOURS', 'EGRESS'],
    [...hours.map((each) => row(each.hour, each)), row('total', total)],
  );
}
