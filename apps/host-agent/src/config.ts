/** The host agent's configuration. Nothing else here reads the environment. */
import { readFileSync } from 'node:fs';
import { availableParallelism, homedir, hostname, totalmem } from 'node:os';
import { join } from 'node:path';
import { Labels } from '@fuse/contract';
import { type ObjectStoreConfig, objectStoreConfigFromEnv } from '@fuse/object-store';
import { z } from 'zod';
import type { ConfinementOptions } from './confinement/confinement.ts';
import { confinementConfigOf, confinementVariables } from './confinement/confinement-config.ts';
import { DEFAULT_GPUS, type GpuConfig, Gpus } from './gpus/config.ts';
import type { ServerTls } from './http/server.ts';
import type { JoinConfig } from './joining/joining.ts';
import {
  Cidrs,
  DEFAULT_NETWORK,
  GatewayMemoryMiB,
  NamespaceName,
  type NetworkConfig,
  PoolSize,
  Resolvers,
} from './network/config.ts';
import { DEFAULT_TEMPLATES_AHEAD, type TemplateAhead, TemplateList } from './templates/templates-ahead.ts';
import type { DiskRate } from './vmm/driver.ts';
import { type VmmConfig, vmmConfigOf, vmmVariables } from './vmm/vmm-config.ts';

export interface HostAgentConfig {
  listen: { host: string; port: number };
  /** What the orchestrator must present; undefined: one of its own, which it tells when it joins. */
  token: string | undefined;
  /** Undefined: plain HTTP. */
  tls: ServerTls | undefined;
  /** Certificates and key again, as their files are now. Throws ConfigError. Absent: they stay what they are. */
  rereadTls?: { read: () => ServerTls | undefined; everyMs: number } | undefined;
  /** Undefined: an operator registers this host. */
  join: JoinConfig | undefined;
  /** Kernel, initramfs and images. */
  assetsManifestPath: string;
  /** VMs and templates; one host agent at a time. */
  dataDirectory: string;
  capacity: {
    cpus: number;
    ramMb: number;
    /** Undefined: the free disk. */
    storageGb: number | undefined;
    maxVms: number;
  };
  /** Free disk below which no VM is started. */
  storageReserveMb: number;
  vmm: VmmConfig;
  confinement: ConfinementOptions;
  /** Of each VM. */
  diskRate: DiskRate;
  network: NetworkConfig;
  gpus: GpuConfig;
  /** Made in the background from the start on; absent: none. */
  templatesAhead?: readonly TemplateAhead[] | undefined;
  objectStore: ObjectStoreConfig;
  logLevel: string;
}

export const DEFAULT_LISTEN = { host: '127.0.0.1', port: 8090 } as const;
/** What an index of one byte, less the ends, leaves for the VMs of a host. */
export const DEFAULT_MAX_VMS = 249;
/** Most tasks wait more than they compute: so many virtual CPUs are offered for each real one. */
export const CPU_OVERSUBSCRIPTION = 4;
const RAM_SHARE = 0.8;
const REREAD_TLS_EVERY_MS = 10_000;
const BYTES_PER_MB = 1_000_000;
export const DEFAULT_STORAGE_RESERVE_MB = 1_024;

export const defaultCapacity = (): HostAgentConfig['capacity'] => ({
  cpus: availableParallelism() * CPU_OVERSUBSCRIPTION,
  ramMb: Math.floor((totalmem() / 1024 ** 2) * RAM_SHARE),
  storageGb: undefined,
  maxVms: DEFAULT_MAX_VMS,
});

const count = z
  .string()
  .regex(/^[1-9]\d{0,8}$/, 'must be a whole number above 0')
  .transform(Number);
const listen = z
  .string()
  .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s]*):\d{1,5}$/, 'must be host:port, such as 127.0.0.1:8090')
  .transform((value) => {
    const at = value.lastIndexOf(':');
    return { host: value.slice(0, at).replace(/^\[|\]$/g, '') || '0.0.0.0', port: Number(value.slice(at + 1)) };
  })
  .refine(({ port }) => port <= 65_535, 'the port must be at most 65535');

const labels = z.string().transform((text, context) => {
  const parsed = Labels.safeParse(Object.fromEntries(text.split(',').map((each) => each.split('=', 2))));
  if (parsed.success) return parsed.data;
  context.addIssue({ code: 'custom', message: 'must be key=value,key=value' });
  return z.NEVER;
});

const Environment = z
  .object({
    FUSE_HOME: z.string().startsWith('/', 'must be an absolute path').optional(),
    FUSE_HOST_LISTEN: listen.optional(),
    FUSE_HOST_TOKEN: z.string().min(16, 'must be at least 16 characters long').optional(),
    FUSE_HOST_TOKEN_FILE: z.string().optional(),
    FUSE_HOST_CPUS: count.optional(),
    FUSE_HOST_RAM_MB: count.optional(),
    FUSE_HOST_STORAGE_GB: count.optional(),
    FUSE_HOST_STORAGE_RESERVE_MB: count.optional(),
    FUSE_HOST_MAX_VMS: count.optional(),
    ...vmmVariables,
    ...confinementVariables,
    FUSE_VM_DISK_MBPS: count.optional(),
    FUSE_VM_DISK_IOPS: count.optional(),
    FUSE_GPUS: Gpus.optional(),
    FUSE_TEMPLATES: TemplateList.optional(),
    FUSE_NETWORK_POOL: PoolSize.optional(),
    FUSE_EGRESS_NETNS: NamespaceName.optional(),
    FUSE_DNS_SERVERS: Resolvers.optional(),
    FUSE_EGRESS_PRIVATE: Cidrs.optional(),
    FUSE_VM_NETWORK_MBPS: count.optional(),
    FUSE_GATEWAY_RAM_MB: GatewayMemoryMiB.optional(),
    FUSE_HOST_TLS_CERT: z.string().optional(),
    FUSE_HOST_TLS_KEY: z.string().optional(),
    FUSE_HOST_TLS_CLIENT_CA: z.string().optional(),
    FUSE_JOIN_URL: z.url({ protocol: /^https?$/ }).optional(),
    FUSE_JOIN_TOKEN: z.string().min(16, 'must be at least 16 characters long').optional(),
    FUSE_JOIN_TOKEN_FILE: z.string().optional(),
    FUSE_JOIN_CA: z.string().optional(),
    FUSE_ADVERTISE_URL: z.url({ protocol: /^https?$/ }).optional(),
    FUSE_HOST_ID: z.string().max(256).optional(),
    FUSE_HOST_REGION: z.string().max(128).optional(),
    FUSE_HOST_LABELS: labels.optional(),
    FUSE_LOG_LEVEL: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).optional(),
  })
  .superRefine((env, context) => {
    const refuse = (name: string, message: string) => context.addIssue({ code: 'custom', path: [name], message });
    const tokens = [env.FUSE_HOST_TOKEN, env.FUSE_HOST_TOKEN_FILE].filter((each) => each !== undefined).length;
    if (tokens > 1 || (tokens === 0 && env.FUSE_JOIN_URL === undefined))
      refuse('FUSE_HOST_TOKEN', 'exactly one of FUSE_HOST_TOKEN and FUSE_HOST_TOKEN_FILE is required');
    if ((env.FUSE_HOST_TLS_CERT === undefined) !== (env.FUSE_HOST_TLS_KEY === undefined))
      refuse('FUSE_HOST_TLS_CERT', 'goes together with FUSE_HOST_TLS_KEY');
    if (env.FUSE_HOST_TLS_CLIENT_CA !== undefined && env.FUSE_HOST_TLS_CERT === undefined)
      refuse('FUSE_HOST_TLS_CLIENT_CA', 'needs FUSE_HOST_TLS_CERT and FUSE_HOST_TLS_KEY');
    if (env.FUSE_JOIN_TOKEN !== undefined && env.FUSE_JOIN_TOKEN_FILE !== undefined)
      refuse('FUSE_JOIN_TOKEN_FILE', 'goes without FUSE_JOIN_TOKEN');
    if (env.FUSE_JOIN_URL !== undefined && env.FUSE_ADVERTISE_URL === undefined)
      refuse('FUSE_ADVERTISE_URL', 'is required with FUSE_JOIN_URL: where the orchestrator reaches this host agent');
  });

export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** Throws ConfigError (AppError for the object store's part) with a line for each problem; values, which may be secrets, are never in it. */
export function loadConfig(variables: Record<string, string | undefined>): HostAgentConfig {
  const given = Object.fromEntries(
    Object.entries(variables).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = Environment.safeParse(given);
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('\n'));
  const env = parsed.data;
  const home = env.FUSE_HOME ?? join(homedir(), '.fuse');
  const capacity = defaultCapacity();
  return {
    listen: env.FUSE_HOST_LISTEN ?? DEFAULT_LISTEN,
    token: env.FUSE_HOST_TOKEN ?? readToken('FUSE_HOST_TOKEN_FILE', env.FUSE_HOST_TOKEN_FILE),
    tls: tlsOf(env),
    rereadTls: { read: () => tlsOf(env), everyMs: REREAD_TLS_EVERY_MS },
    join: joinOf(env),
    assetsManifestPath: join(home, 'assets', 'manifest.json'),
    dataDirectory: join(home, 'host'),
    capacity: {
      cpus: env.FUSE_HOST_CPUS ?? capacity.cpus,
      ramMb: env.FUSE_HOST_RAM_MB ?? capacity.ramMb,
      storageGb: env.FUSE_HOST_STORAGE_GB,
      maxVms: env.FUSE_HOST_MAX_VMS ?? capacity.maxVms,
    },
    storageReserveMb: env.FUSE_HOST_STORAGE_RESERVE_MB ?? DEFAULT_STORAGE_RESERVE_MB,
    vmm: vmmConfigOf(env),
    confinement: confinementConfigOf(env),
    diskRate: {
      bytesPerSecond: env.FUSE_VM_DISK_MBPS === undefined ? undefined : env.FUSE_VM_DISK_MBPS * BYTES_PER_MB,
      requestsPerSecond: env.FUSE_VM_DISK_IOPS,
    },
    network: {
      poolSize: env.FUSE_NETWORK_POOL ?? DEFAULT_NETWORK.poolSize,
      egressNamespace: env.FUSE_EGRESS_NETNS,
      resolvers: env.FUSE_DNS_SERVERS,
      privateAllow: env.FUSE_EGRESS_PRIVATE ?? DEFAULT_NETWORK.privateAllow,
      vmBytesPerSecond: env.FUSE_VM_NETWORK_MBPS === undefined ? undefined : env.FUSE_VM_NETWORK_MBPS * BYTES_PER_MB,
      gatewayMemoryMiB: env.FUSE_GATEWAY_RAM_MB ?? DEFAULT_NETWORK.gatewayMemoryMiB,
    },
    gpus: { ...DEFAULT_GPUS, ...(env.FUSE_GPUS === undefined ? {} : { choice: env.FUSE_GPUS }) },
    templatesAhead: env.FUSE_TEMPLATES ?? DEFAULT_TEMPLATES_AHEAD,
    objectStore: objectStoreConfigFromEnv(variables),
    logLevel: env.FUSE_LOG_LEVEL ?? 'info',
  };
}

function tlsOf(env: z.infer<typeof Environment>): ServerTls | undefined {
  const cert = readText('FUSE_HOST_TLS_CERT', env.FUSE_HOST_TLS_CERT);
  const key = readText('FUSE_HOST_TLS_KEY', env.FUSE_HOST_TLS_KEY);
  if (cert === undefined || key === undefined) return undefined;
  return { cert, key, clientCa: readText('FUSE_HOST_TLS_CLIENT_CA', env.FUSE_HOST_TLS_CLIENT_CA) };
}

function joinOf(env: z.infer<typeof Environment>): JoinConfig | undefined {
  const { FUSE_JOIN_URL: url, FUSE_ADVERTISE_URL: advertiseUrl } = env;
  if (url === undefined || advertiseUrl === undefined) return undefined;
  return {
    url,
    ca: readText('FUSE_JOIN_CA', env.FUSE_JOIN_CA),
    token: env.FUSE_JOIN_TOKEN ?? readToken('FUSE_JOIN_TOKEN_FILE', env.FUSE_JOIN_TOKEN_FILE),
    id: env.FUSE_HOST_ID ?? hostname(),
    advertiseUrl,
    region: env.FUSE_HOST_REGION,
    labels: env.FUSE_HOST_LABELS,
  };
}

function readToken(name: string, path: string | undefined): string | undefined {
  const text = readText(name, path)?.trim();
  if (text !== undefined && text.length < 16)
    throw new ConfigError(`${name}: the token in ${path} is under 16 characters long`);
  return text;
}

function readText(name: string, path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new ConfigError(`${name}: ${path} cannot be read`, { cause });
  }
}
