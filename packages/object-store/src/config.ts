/** Where objects are kept, from the environment: S3 when any `S3_*` variable is set, a directory under FUSE_HOME otherwise. */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { AppError, invalidField } from '@fuse/contract';
import { checkKey } from './keys.ts';

export interface FileStoreConfig {
  kind: 'file';
  directory: string;
}

export interface S3StoreConfig {
  kind: 's3';
  /** `http(s)://host[:port]`; absent: AWS, by the region. */
  endpoint?: string;
  bucket: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  /** `endpoint/bucket/key` in place of `bucket.endpoint/key`. */
  forcePathStyle: boolean;
  /** Key prefix of all that this store keeps in the bucket, without "/" at its ends. */
  prefix?: string;
}

export type ObjectStoreConfig = FileStoreConfig | S3StoreConfig;

/** With the longest key and the names that the S3 adapter adds, below the 1024 bytes that S3 allows. */
const MAX_PREFIX_LENGTH = 100;

type Environment = Readonly<Record<string, string | undefined>>;

const S3_VARIABLES = [
  'S3_ENDPOINT',
  'S3_BUCKET',
  'S3_REGION',
  'S3_ACCESS_KEY_ID',
  'S3_SECRET_ACCESS_KEY',
  'S3_FORCE_PATH_STYLE',
  'S3_PREFIX',
] as const;

export function objectStoreConfigFromEnv(env: Environment): ObjectStoreConfig {
  const used = S3_VARIABLES.filter((name) => read(env, name) !== undefined);
  if (used.length > 0) return s3Config(env);
  const home = read(env, 'FUSE_HOME') ?? join(read(env, 'HOME') ?? homedir(), '.fuse');
  return { kind: 'file', directory: read(env, 'FUSE_OBJECTS_DIR') ?? join(home, 'objects') };
}

function s3Config(env: Environment): S3StoreConfig {
  const endpoint = read(env, 'S3_ENDPOINT');
  const bucket = read(env, 'S3_BUCKET');
  // A server of one's own rarely cares; AWS does.
  const region = read(env, 'S3_REGION') ?? (endpoint === undefined ? undefined : 'us-east-1');
  const accessKeyId = read(env, 'S3_ACCESS_KEY_ID');
  const secretAccessKey = read(env, 'S3_SECRET_ACCESS_KEY');
  if (bucket === undefined || region === undefined || accessKeyId === undefined || secretAccessKey === undefined)
    throw missingVariables({
      S3_BUCKET: bucket,
      S3_REGION: region,
      S3_ACCESS_KEY_ID: accessKeyId,
      S3_SECRET_ACCESS_KEY: secretAccessKey,
    });
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$/.test(bucket))
    throw invalidField('S3_BUCKET', 'is not a bucket name');
  const prefix = parsePrefix(read(env, 'S3_PREFIX'));
  return {
    kind: 's3',
    ...(endpoint === undefined ? {} : { endpoint: parseEndpoint(endpoint) }),
    bucket,
    region,
    accessKeyId,
    secretAccessKey,
    forcePathStyle: parseBoolean('S3_FORCE_PATH_STYLE', read(env, 'S3_FORCE_PATH_STYLE')) ?? endpoint !== undefined,
    ...(prefix === undefined ? {} : { prefix }),
  };
}

/** Empty is unset: that is how env files and Compose spell it. */
function read(env: Environment, name: string): string | undefined {
  const value = env[name]?.trim();
  return value === '' ? undefined : value;
}

function missingVariables(needed: Record<string, string | undefined>): AppError {
  const names = Object.keys(needed).filter((name) => needed[name] === undefined);
  return new AppError('invalid_argument', `object store: ${names.join(', ')} must be set for S3`, {
    details: { field: names.join(', ') },
    hint: 'set them, or unset every S3_* variable to keep objects in a directory',
  });
}

function parseEndpoint(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    throw invalidField('S3_ENDPOINT', 'must be a URL such as https://s3.example.com');
  if (url.username !== '' || url.password !== '') throw invalidField('S3_ENDPOINT', 'must not hold credentials');
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw invalidField('S3_ENDPOINT', 'must end after the host and port; the bucket goes into S3_BUCKET');
  return url.origin;
}

function parsePrefix(value: string | undefined): string | undefined {
  const prefix = value?.replace(/^\/+|\/+$/g, '');
  if (prefix === undefined || prefix === '') return undefined;
  checkKey(prefix, 'S3_PREFIX');
  if (prefix.length > MAX_PREFIX_LENGTH)
    throw invalidField('S3_PREFIX', `is longer than ${MAX_PREFIX_LENGTH} characters`);
  return prefix;
}

function parseBoolean(name: string, value: string | undefined): boolean | undefined {
  if (value === undefined) return undefined;
  if (['true', '1', 'yes', 'on'].includes(value.toLowerCase())) return true;
  if (['false', '0', 'no', 'off'].includes(value.toLowerCase())) return false;
  throw invalidField(name, 'must be true or false');
}
