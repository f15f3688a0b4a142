/** What a registration may say. Pure. */
import { invalidField, type RegisterHost } from '@fuse/contract';
import type { HostCapacityReport } from '@fuse/host-protocol';
import type { Capacity } from '../scheduling/schedule.ts';

const AMOUNTS = ['cpus', 'ram_mb', 'storage_gb', 'vm_count'] as const;
const ARCHITECTURES: Record<string, 'amd64' | 'arm64'> = {
  amd64: 'amd64',
  x86_64: 'amd64',
  arm64: 'arm64',
  aarch64: 'arm64',
};

export function checkHostUrl(text: string): void {
  const hint = 'Give the host agent’s base URL, such as http://10.0.0.7:8090.';
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined) throw invalidField('url', 'is not a URL', hint);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw invalidField('url', 'must be http or https', hint);
  if (url.username !== '' || url.password !== '') throw invalidField('url', 'must not hold credentials', hint);
  if (/[?#]/.test(text)) throw invalidField('url', 'must not have a query or a fragment', hint);
}

export function declaredArch({ capacity }: RegisterHost): 'amd64' | 'arm64' | undefined {
  const arch = capacity?.arch?.toLowerCase();
  if (arch === undefined || arch === '') return undefined;
  const known = Object.hasOwn(ARCHITECTURES, arch) ? ARCHITECTURES[arch] : undefined;
  if (known === undefined) throw invalidField('capacity.arch', 'must be amd64 or arm64');
  return known;
}

/** Declared amounts stand, with a warning when the host has less; what is not declared is what it reports. */
export function fillCapacity(
  { capacity: declared }: RegisterHost,
  report: HostCapacityReport | undefined,
  warnings: string[],
): Capacity {
  if ((declared?.gpus ?? 0) > 0) throw invalidField('capacity.gpus', 'this version serves no gpus');
  const filled: Capacity = { cpus: 0, ram_mb: 0, storage_gb: 0, vm_count: 0 };
  for (const key of AMOUNTS) {
    const wanted = declared?.[key] || report?.[key] || 0;
    if (wanted <= 0) throw invalidField(`capacity.${key}`, 'must be over 0');
    if (report !== undefined && wanted > report[key])
      warnings.push(`declared ${key} (${wanted}) exceeds probed host capacity (${report[key]})`);
    filled[key] = wanted;
  }
  return filled;
}
