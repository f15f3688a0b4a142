/** Settings of the network, and how they are written. */
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { AppError } from '@fuse/contract';
import type { GatewayConfig } from '@fuse/host-protocol';
import { z } from 'zod';
import { runProgram } from '../vmm/children.ts';
import { PROGRAM_PATH } from './slot.ts';

export interface NetworkConfig {
  /** Slots that are kept ready. */
  poolSize: number;
  /** The network namespace that guests' connections leave from; undefined: the host's own. */
  egressNamespace: string | undefined;
  /** `address:port`; undefined: the host's. */
  resolvers: readonly string[] | undefined;
  /** CIDRs that are private or special and may be reached. */
  privateAllow: readonly string[];
  /** Of each VM, both ways together; undefined: no limit. */
  vmBytesPerSecond: number | undefined;
  /** What the gateway may take, and with that what VMs may have it hold. */
  gatewayMemoryMiB: number;
}

export const DEFAULT_NETWORK: NetworkConfig = {
  poolSize: 4,
  egressNamespace: undefined,
  resolvers: undefined,
  privateAllow: [],
  vmBytesPerSecond: undefined,
  gatewayMemoryMiB: 1_024,
};

const DNS_PORT = '53';
const MAX_POOL = 64;
/** Beneath it VMs would have little but what each has for certain. */
const MIN_GATEWAY_MEMORY_MIB = 64;
const MAX_CONNECTIONS_PER_VM = 1_024;
const RESOLV_CONF = '/etc/resolv.conf';

const listed = (text: string): string[] => text.split(',').map((each) => each.trim());

export const PoolSize = z
  .string()
  .regex(/^\d{1,3}$/, 'must be a whole number')
  .transform(Number)
  .refine((size) => size <= MAX_POOL, `must be at most ${MAX_POOL}`);
export const GatewayMemoryMiB = z
  .string()
  .regex(/^\d{1,7}$/, 'must be a whole number')
  .transform(Number)
  .refine((size) => size >= MIN_GATEWAY_MEMORY_MIB, `must be at least ${MIN_GATEWAY_MEMORY_MIB}`);
/** It becomes part of a path. */
export const NamespaceName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be the name of a network namespace');
export const Resolvers = z.string().transform((text, context) => {
  const resolvers = listed(text).map(withPort);
  if (!resolvers.includes(undefined)) return resolvers.filter((each) => each !== undefined);
  context.addIssue({ code: 'custom', message: 'must be addresses, such as 192.0.2.53,[2001:db8::53]:5353' });
  return z.NEVER;
});
export const Cidrs = z.string().transform((text, context) => {
  const cidrs = listed(text);
  if (cidrs.every(isCidr)) return cidrs;
  context.addIssue({ code: 'custom', message: 'must be ranges, such as 10.1.0.0/16,fd00::/64' });
  return z.NEVER;
});

function withPort(text: string): string | undefined {
  if (isIP(text) === 4) return `${text}:${DNS_PORT}`;
  if (isIP(text) === 6) return `[${text}]:${DNS_PORT}`;
  const match = /^(?:\[(?<v6>[^\]]+)\]|(?<v4>[^:]+))(?::(?<port>\d{1,5}))?$/.exec(text)?.groups;
  const port = match?.port ?? DNS_PORT;
  if (match === undefined || Number(port) > 65_535 || Number(port) === 0) return undefined;
  if (match.v6 !== undefined) return isIP(match.v6) === 6 ? `[${match.v6}]:${port}` : undefined;
  return isIP(match.v4 ?? '') === 4 ? `${match.v4}:${port}` : undefined;
}

function isCidr(text: string): boolean {
  const [address = '', bits = '', ...more] = text.split('/');
  const family = isIP(address);
  return more.length === 0 && family !== 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128);
}

/** What the gateway is told, as of now. */
export async function gatewayConfig({
  resolvers,
  privateAllow,
  egressNamespace,
}: NetworkConfig): Promise<GatewayConfig> {
  const asked = resolvers ?? (await hostResolvers());
  if (asked.length === 0)
    throw new AppError('unavailable', `${RESOLV_CONF} names no resolver`, { hint: 'name some with FUSE_DNS_SERVERS' });
  const addresses = Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address));
  if (egressNamespace !== undefined) addresses.push(...(await namespaceAddresses(egressNamespace)));
  return {
    resolvers: [...asked],
    private_allow: [...privateAllow],
    host_addresses: [...new Set(addresses.map(withoutZone))].sort(),
    max_connections_per_vm: MAX_CONNECTIONS_PER_VM,
  };
}

async function hostResolvers(): Promise<string[]> {
  const lines = (await readFile(RESOLV_CONF, 'utf8').catch(() => '')).split('\n');
  return lines.flatMap((line) => {
    const resolver = withPort(withoutZone(/^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? ''));
    return resolver === undefined ? [] : [resolver];
  });
}

const Links = z.array(z.object({ addr_info: z.array(z.object({ local: z.string().optional() })).optional() }));

async function namespaceAddresses(name: string): Promise<string[]> {
  const text = await runProgram('ip', ['-n', name, '-json', 'address', 'show'], { path: PROGRAM_PATH });
  const addresses = Links.parse(JSON.parse(text)).flatMap(({ addr_info = [] }) => addr_info.map(({ local }) => local));
  return addresses.filter((each) => each !== undefined);
}

const withoutZone = (address: string): string => address.replace(/%.*$/, '');
