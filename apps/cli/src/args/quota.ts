/** `name=value` of quotas. */
import { type QuotaName, quotaNames } from '@fuse/contract';
import { InvalidArgumentError } from 'commander';
import { parseSizeMiB } from './size.ts';

/** `null`: no limit. */
export type GivenQuotas = Partial<Record<QuotaName, number | null>>;

const isQuota = (name: string): name is QuotaName => (quotaNames as string[]).includes(name);

/** May be repeated. Bytes also as sizes, such as 20G; `none` takes a limit away. */
export function gatherQuota(text: string, soFar: GivenQuotas = {}): GivenQuotas {
  const [name = '', value = '', ...more] = text.split('=');
  if (!isQuota(name)) throw new InvalidArgumentError(`"${name}" is no quota; there are ${quotaNames.join(', ')}.`);
  if (value === '' || more.length > 0) throw new InvalidArgumentError(`Write ${name}=VALUE, or ${name}=none.`);
  return { ...soFar, [name]: value === 'none' ? null : amountOf(name, value) };
}

function amountOf(name: QuotaName, value: string): number {
  if (/^\d{1,15}$/.test(value)) return Number(value);
  if (name.endsWith('_bytes')) return parseSizeMiB(value) * 1_048_576;
  throw new InvalidArgumentError('Write a whole number, or none.');
}
