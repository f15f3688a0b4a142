import { InvalidArgumentError } from 'commander';

export function parsePositiveInt(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value) || value < 1)
    throw new InvalidArgumentError('Write a whole number of at least 1.');
  return value;
}
