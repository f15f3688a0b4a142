/** Where clouds serve credentials to whoever runs on a machine of theirs: the gateway's `metadata` (policy/forbidden.go), which no policy and no operator opens. Pure. */
import { type AddressRange, contains, parseRange } from './network-address.ts';

export const METADATA_CIDRS: readonly string[] = [
  '169.254.169.0/24',
  '169.254.170.0/24',
  '169.254.42.42/32',
  '169.254.0.23/32',
  '100.100.100.200/32',
  '168.63.129.16/32',
  '192.0.0.192/32',
  'fd00:ec2::/32',
  'fd20:ce::254/128',
  'fd00:42::42/128',
  'fd00:c1::a9fe:a9fe/128',
  'fe80::a9fe:a9fe/128',
];

const ranges = METADATA_CIDRS.map(parseRange).filter((range) => range !== undefined);

/** Whether nothing else is in it. */
export const isMetadata = (range: AddressRange): boolean => ranges.some((one) => contains(one, range));
