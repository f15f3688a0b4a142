/** The orchestrator's configuration. Nothing else here reads the environment. */
import { readFileSync } from 'node:fs';
import { AppError, policyWithin } from '@fuse/contract';
import { type ObjectStoreConfig, objectStoreConfigFromEnv } from '@fuse/object-store';
import { z } from 'zod';
import type { DatabaseLocation } from './db/open.ts';
import { defaultExecConfig, type ExecConfig } from './execs/exec-config.ts';
import type { HostTls } from './hosts/host-request.ts';
import { parseCidr, type Subnet } from './http/cidr.ts';
import type { RateLimitConfig } from './http/rate-limit.ts';
import type { ServerTls } from './http/server-tls.ts';
import { defaultNetworkConfig, type NetworkConfig, parseNetwork } from './network/network-config.ts';
import { defaultIntervals, type ReconcilerIntervals } from './reconciling/reconciler.ts';
import { defaultRunConfig, type RunConfig } from './runs/run-config.ts';
import type { PlacementPolicy } from './scheduling/schedule.ts';
import { parseSealingKey, type SealingKeys } from './secrets/sealing-keys.ts';
import { defaultExportConfig, type ExportConfig } from './snapshots/exporting/export-config.ts';

export interface OrchestratorConfig {
  /** `host` undefined: every address. Port 0: any free one. */
  listen: { host: string | undefined; port: number };
  database: DatabaseLocation;
  objectStore: ObjectStoreConfig;
  /** Undefined: nobody is the master; with the embedded database, everybody. */
  masterToken: string | undefined;
  /** Who may ask at all; none: everybody. */
  allowedCidrs: readonly Subnet[];
  /** Of each credential, by each process; undefined: none. */
  rateLimit?: RateLimitConfig | undefined;
  /** Undefined: plain HTTP. */
  tls?: ServerTls | undefined;
  /** How hosts with an https URL are trusted, and trust us. */
  hostTls?: HostTls | undefined;
  /** Certificates and keys again, as their files are now. Throws ConfigError. Absent: they stay what they are. */
  rereadTls?: { read: () => Pick<OrchestratorConfig, 'tls' | 'hostTls'>; everyMs: number } | undefined;
  /** Whether cookies are for TLS alone; undefined: as the request came, or `publicUrl` says. */
  secureCookies: boolean | undefined;
  sealing: SealingKeys;
  /** Of environment ids: `<vmPrefix><task_id>`. */
  vmPrefix: string;
  placementPolicy: PlacementPolicy;
  /** Where clients reach us, for URLs that we hand out; undefined: as the request's Host header says. */
  publicUrl: string | undefined;
  /** As bare host:port, in `endpoints` of environments; undefined: that of `publicUrl`, else where we listen. */
  publicAddress: string | undefined;
  shutdownTimeoutMs: number;
  /** How long what a replica drives waits for it once it is gone: the length of its leases. */
  takeoverMs: number;
  reconciling: ReconcilerIntervals;
  runs: RunConfig;
  exports: ExportConfig;
  execs: ExecConfig;
  network: NetworkConfig;
  audit: { retentionMs: number };
  version: string;
  logLevel: string;
}

export const DEFAULT_PORT = 8_080;
const DEFAULT_TAKEOVER_SECONDS = 30;
const REREAD_TLS_EVERY_MS = 10_000;
const AUDIT_RETENTION_SECONDS = 90 * 86_400;

export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

const listen = z
  .string()
  .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s]*):\d{1,5}$/, 'must be host:port or :port, such as 127.0.0.1:8080')
  .transform((value) => {
    const at = value.lastIndexOf(':');
    return { host: value.slice(0, at).replace(/^\[|\]$/g, '') || undefined, port: Number(value.slice(at + 1)) };
  })
  .refine(({ port }) => port <= 65_535, 'the port must be at most 65535');

const positive = (max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .refine((value) => value >= 1 && value <= max, `must be 1 to ${max}`);

const network = z.string().transform((text, ctx) => {
  try {
    return parseNetwork(text);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    ctx.addIssue({
      code: 'custom',
      message: error.hint === undefined ? error.message : `${error.message} (${error.hint})`,
    });
    return z.NEVER;
  }
});

const Environment = z.object({
  ORCH_LISTEN: listen.optional(),
  ORCH_VM_PREFIX: z
    .string()
    .regex(/^[a-z0-9-]{0,32}$/, 'must be at most 32 lower-case letters, digits or "-"')
    .optional(),
  ORCH_AUTH_TOKEN: z.string().optional(),
  ORCH_AUTH_TOKEN_FILE: z.string().optional(),
  TOKEN_ENCRYPTION_KEY: z.string().optional(),
  TOKEN_ENCRYPTION_KEY_FILE: z.string().optional(),
  TOKEN_ENCRYPTION_KEY_OLD: z.string().optional(),
  TOKEN_ENCRYPTION_KEY_OLD_FILE: z.string().optional(),
  ORCH_REQUIRE_AUTH: z.enum(['true', 'false', '1', '0']).optional(),
  ORCH_RATE_LIMIT: positive(1_000_000).optional(),
  ORCH_RATE_LIMIT_BURST: positive(10_000_000).optional(),
  ORCH_ALLOWED_CIDRS: z
    .string()
    .transform((text) => text.split(',').map((one) => parseCidr(one.trim())))
    .refine(
      (subnets) => !subnets.includes(undefined),
      'must be addresses or networks with commas between, such as 10.0.0.0/8,2001:db8::/32',
    )
    .transform((subnets) => subnets.filter((subnet) => subnet !== undefined))
    .optional(),
  ORCH_TLS_CERT: z.string().optional(),
  ORCH_TLS_KEY: z.string().optional(),
  ORCH_HOST_CA: z.string().optional(),
  ORCH_HOST_CLIENT_CERT: z.string().optional(),
  ORCH_HOST_CLIENT_KEY: z.string().optional(),
  ORCH_SECURE_COOKIES: z.enum(['true', 'false', '1', '0']).optional(),
  ORCH_SHUTDOWN_TIMEOUT_SECONDS: z
    .string()
    .regex(/^\d{1,5}$/, 'must be a whole number of seconds')
    .transform(Number)
    .optional(),
  ORCH_TAKEOVER_SECONDS: positive(3_600).optional(),
  ORCH_MAX_RUNS: positive(10_000).optional(),
  ORCH_RUN_RETENTION_SECONDS: positive(315_360_000).optional(),
  ORCH_CHECKPOINT_RETENTION_SECONDS: positive(315_360_000).optional(),
  ORCH_EXEC_RETENTION_SECONDS: positive(315_360_000).optional(),
  ORCH_AUDIT_RETENTION_SECONDS: positive(315_360_000).optional(),
  ORCH_MAX_FILE_BYTES: positive(5 * 1024 ** 4).optional(),
  ORCH_FILE_LIFETIME_SECONDS: positive(31_536_000).optional(),
  ORCH_PLACEMENT: z.enum(['spread', 'binpack']).optional(),
  ORCH_PUBLIC_URL: z.url({ protocol: /^https?$/ }).optional(),
  ORCH_PUBLIC_ADDRESS: z
    .string()
    .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s/]+):\d{1,5}$/, 'must be host:port, such as fuse.example.com:443')
    .optional(),
  DATABASE_URL: z.url({ protocol: /^postgres(ql)?$/ }).optional(),
  ORCH_EMBEDDED_DATABASE: z.string().startsWith('/', 'must be an absolute path').optional(),
  FUSE_DEFAULT_NETWORK: network.optional(),
  FUSE_MAX_NETWORK: network.optional(),
  FUSE_SNAPSHOT_EXPORT: z.enum(['always', 'on-request']).optional(),
  FUSE_LOG_LEVEL: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).optional(),
});

/** Throws ConfigError (AppError for the object store's part) with a line for each problem; values, which may be secrets, are never in it. */
export function loadConfig(variables: Record<string, string | undefined>): OrchestratorConfig {
  const given = Object.fromEntries(
    Object.entries(variables).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = Environment.safeParse(given);
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('\n'));
  const env = parsed.data;
  const masterToken = secretOf(env, 'ORCH_AUTH_TOKEN');
  const sealing = sealingKeys(env);
  if (['true', '1'].includes(env.ORCH_REQUIRE_AUTH ?? ''))
    requireAll({ masterToken, sealing, databaseUrl: env.DATABASE_URL });
  const takeoverMs = (env.ORCH_TAKEOVER_SECONDS ?? DEFAULT_TAKEOVER_SECONDS) * 1_000;
  return {
    listen: env.ORCH_LISTEN ?? { host: undefined, port: DEFAULT_PORT },
    database: databaseLocation(env),
    objectStore: objectStoreConfigFromEnv(variables),
    masterToken,
    allowedCidrs: env.ORCH_ALLOWED_CIDRS ?? [],
    rateLimit: rateLimitOf(env),
    ...tlsConfig(env),
    rereadTls: { read: () => tlsConfig(env), everyMs: REREAD_TLS_EVERY_MS },
    secureCookies: env.ORCH_SECURE_COOKIES === undefined ? undefined : ['true', '1'].includes(env.ORCH_SECURE_COOKIES),
    sealing,
    vmPrefix: env.ORCH_VM_PREFIX ?? 'fuse-',
    placementPolicy: env.ORCH_PLACEMENT ?? 'spread',
    publicUrl: env.ORCH_PUBLIC_URL?.replace(/\/+$/, ''),
    publicAddress: env.ORCH_PUBLIC_ADDRESS ?? addressOf(env.ORCH_PUBLIC_URL),
    shutdownTimeoutMs: (env.ORCH_SHUTDOWN_TIMEOUT_SECONDS ?? 30) * 1_000,
    takeoverMs,
    reconciling: {
      ...defaultIntervals,
      leaseMs: (takeoverMs * 2) / 3,
      keepCheckpointsMs: (env.ORCH_CHECKPOINT_RETENTION_SECONDS ?? defaultIntervals.keepCheckpointsMs / 1_000) * 1_000,
    },
    runs: {
      ...defaultRunConfig,
      maxRuns: env.ORCH_MAX_RUNS ?? defaultRunConfig.maxRuns,
      maxFileBytes: env.ORCH_MAX_FILE_BYTES ?? defaultRunConfig.maxFileBytes,
      retentionMs: (env.ORCH_RUN_RETENTION_SECONDS ?? defaultRunConfig.retentionMs / 1_000) * 1_000,
      fileLifetimeMs: (env.ORCH_FILE_LIFETIME_SECONDS ?? defaultRunConfig.fileLifetimeMs / 1_000) * 1_000,
    },
    execs: {
      ...defaultExecConfig,
      retentionMs: (env.ORCH_EXEC_RETENTION_SECONDS ?? defaultExecConfig.retentionMs / 1_000) * 1_000,
    },
    network: networkConfig(env),
    audit: { retentionMs: (env.ORCH_AUDIT_RETENTION_SECONDS ?? AUDIT_RETENTION_SECONDS) * 1_000 },
    exports: { ...defaultExportConfig, when: env.FUSE_SNAPSHOT_EXPORT ?? defaultExportConfig.when },
    version: packageVersion(),
    logLevel: env.FUSE_LOG_LEVEL ?? 'info',
  };
}

function networkConfig(env: z.infer<typeof Environment>): NetworkConfig {
  const config = { default: env.FUSE_DEFAULT_NETWORK ?? defaultNetworkConfig.default, max: env.FUSE_MAX_NETWORK };
  const excess = config.max && policyWithin(config.default, config.max);
  if (excess !== undefined)
    throw new ConfigError(`FUSE_DEFAULT_NETWORK: is more than FUSE_MAX_NETWORK: "${excess.what}" ${excess.why}`);
  return config;
}

function tlsConfig(env: z.infer<typeof Environment>): Pick<OrchestratorConfig, 'tls' | 'hostTls'> {
  const cert = pemOf(env, 'ORCH_TLS_CERT');
  const key = pemOf(env, 'ORCH_TLS_KEY');
  const ca = pemOf(env, 'ORCH_HOST_CA');
  const clientCert = pemOf(env, 'ORCH_HOST_CLIENT_CERT');
  const clientKey = pemOf(env, 'ORCH_HOST_CLIENT_KEY');
  if ((cert === undefined) !== (key === undefined))
    throw new ConfigError('ORCH_TLS_CERT: goes together with ORCH_TLS_KEY');
  if ((clientCert === undefined) !== (clientKey === undefined))
    throw new ConfigError('ORCH_HOST_CLIENT_CERT: goes together with ORCH_HOST_CLIENT_KEY');
  return {
    tls: cert === undefined || key === undefined ? undefined : { cert, key },
    hostTls: { ca, cert: clientCert, key: clientKey },
  };
}

/** The text of the file that the variable names. */
function pemOf(
  env: z.infer<typeof Environment>,
  name: 'ORCH_TLS_CERT' | 'ORCH_TLS_KEY' | 'ORCH_HOST_CA' | 'ORCH_HOST_CLIENT_CERT' | 'ORCH_HOST_CLIENT_KEY',
): string | undefined {
  const path = env[name];
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new ConfigError(`${name}: ${path} cannot be read`, { cause });
  }
}

/** By default two seconds' worth at once. */
function rateLimitOf({
  ORCH_RATE_LIMIT,
  ORCH_RATE_LIMIT_BURST,
}: z.infer<typeof Environment>): RateLimitConfig | undefined {
  if (ORCH_RATE_LIMIT === undefined && ORCH_RATE_LIMIT_BURST !== undefined)
    throw new ConfigError('ORCH_RATE_LIMIT_BURST: needs ORCH_RATE_LIMIT');
  if (ORCH_RATE_LIMIT === undefined) return undefined;
  return { perSecond: ORCH_RATE_LIMIT, burst: ORCH_RATE_LIMIT_BURST ?? 2 * ORCH_RATE_LIMIT };
}

function addressOf(publicUrl: string | undefined): string | undefined {
  if (publicUrl === undefined) return undefined;
  const { hostname, port, protocol } = new URL(publicUrl);
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`;
}

function databaseLocation(env: z.infer<typeof Environment>): DatabaseLocation {
  if (env.DATABASE_URL !== undefined) return { url: env.DATABASE_URL };
  if (env.ORCH_EMBEDDED_DATABASE !== undefined) return { directory: env.ORCH_EMBEDDED_DATABASE };
  throw new ConfigError(
    'DATABASE_URL: is required (a postgresql:// URL); for one machine alone, ORCH_EMBEDDED_DATABASE names a directory in its place',
  );
}

/** What ORCH_REQUIRE_AUTH asks for: nobody can start it open, unencrypted or with its state on one machine by leaving something out. */
function requireAll(given: {
  masterToken: string | undefined;
  sealing: SealingKeys;
  databaseUrl: string | undefined;
}): void {
  const missing = [
    ...(given.masterToken === undefined ? ['ORCH_AUTH_TOKEN or ORCH_AUTH_TOKEN_FILE'] : []),
    ...(given.sealing.current === undefined ? ['TOKEN_ENCRYPTION_KEY or TOKEN_ENCRYPTION_KEY_FILE'] : []),
    ...(given.databaseUrl === undefined ? ['DATABASE_URL'] : []),
  ];
  if (missing.length > 0) throw new ConfigError(missing.map((name) => `ORCH_REQUIRE_AUTH: needs ${name}`).join('\n'));
}

function sealingKeys(env: z.infer<typeof Environment>): SealingKeys {
  const current = sealingKey(env, 'TOKEN_ENCRYPTION_KEY');
  const old = sealingKey(env, 'TOKEN_ENCRYPTION_KEY_OLD');
  if (old !== undefined && current === undefined)
    throw new ConfigError('TOKEN_ENCRYPTION_KEY_OLD: goes with TOKEN_ENCRYPTION_KEY, the key that takes its place');
  return { current, old };
}

function sealingKey(
  env: z.infer<typeof Environment>,
  name: 'TOKEN_ENCRYPTION_KEY' | 'TOKEN_ENCRYPTION_KEY_OLD',
): Uint8Array | undefined {
  const text = secretOf(env, name);
  if (text === undefined) return undefined;
  const key = parseSealingKey(text);
  if (key === undefined)
    throw new ConfigError(`${name}: must be 32 bytes, as 64 hex digits or base64; make one: openssl rand -hex 32`);
  return key;
}

/** From the variable, or from the file that `<name>_FILE` names. */
function secretOf(
  env: z.infer<typeof Environment>,
  name: 'ORCH_AUTH_TOKEN' | 'TOKEN_ENCRYPTION_KEY' | 'TOKEN_ENCRYPTION_KEY_OLD',
): string | undefined {
  const path = env[`${name}_FILE`];
  if (path === undefined) return env[name];
  if (env[name] !== undefined) throw new ConfigError(`${name}_FILE: goes without ${name}`);
  let text: string;
  try {
    text = readFileSync(path, 'utf8').trim();
  } catch (cause) {
    throw new ConfigError(`${name}_FILE: ${path} cannot be read`, { cause });
  }
  // An empty file must not mean "no authentication" or "no encryption".
  if (text === '') throw new ConfigError(`${name}_FILE: ${path} is empty`);
  return text;
}

export function packageVersion(): string {
  const parsed = z
    .object({ version: z.string() })
    .parse(JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')));
  return parsed.version;
}
