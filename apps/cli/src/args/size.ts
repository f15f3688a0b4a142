import { InvalidArgumentError } from 'commander';

const unitMiB = { m: 1, g: 1_024, t: 1_048_576 } as const;

/** `512M`, `1.5G`, `2GiB` in MiB; units are binary, the result is whole and more than nothing. */
export function parseSizeMiB(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([mgt])(?:i?b)?$/i.exec(text);
  const unit = match?.[2]?.toLowerCase() as keyof typeof unitMiB | undefined; // the pattern takes no other
  const size = match === null || unit === undefined ? 0 : Number(match[1]) * unitMiB[unit];
  if (!Number.isSafeInteger(size) || size < 1)
    throw new InvalidArgumentError('Write a size with its unit, a whole number of mebibytes, such as 512M or 2G.');
  return size;
}

/** The same in GiB, rounded up. */
export const parseSizeGiB = (text: string): number => Math.ceil(parseSizeMiB(text) / 1_024);
