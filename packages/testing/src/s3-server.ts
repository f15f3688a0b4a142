/** A real S3 server (versitygw over a temporary directory) with one bucket, on a free loopback port. */
import { mkdir, mkdtemp } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './free-port.ts';
import { KeptProcess } from './kept-process.ts';
import { ensureVersitygw } from './versitygw.ts';

export interface S3ServerConfig {
  kind: 's3';
  endpoint: string;
  bucket: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  forcePathStyle: true;
}

export interface S3Server extends AsyncDisposable {
  config: S3ServerConfig;
  /** The same as `config`, as the variables of a process's environment. */
  env: Record<string, string>;
  /** Where the server keeps the bucket's objects: a file each. */
  bucketDirectory: string;
}

export interface S3ServerOptions {
  /** PEM files: the server speaks TLS. */
  tls?: { certPath: string; keyPath: string };
}

export async function startS3Server({ tls }: S3ServerOptions = {}): Promise<S3Server> {
  const program = await ensureVersitygw();
  const port = await freePort();
  const directory = await mkdtemp(join(tmpdir(), 'fuse-s3-'));
  const config: S3ServerConfig = {
    kind: 's3',
    endpoint: `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}`,
    bucket: 'fuse-test',
    region: 'us-east-1',
    accessKeyId: 'fuse-test-access',
    secretAccessKey: 'fuse-test-secret',
    forcePathStyle: true,
  };
  const bucketDirectory = join(directory, 'data', config.bucket);
  await mkdir(bucketDirectory, { recursive: true });
  const server = await KeptProcess.start({
    argv: [
      program,
      ...['--port', `127.0.0.1:${port}`, '--region', config.region, '--quiet', '--keep-alive'],
      ...(tls === undefined ? [] : ['--cert', tls.certPath, '--key', tls.keyPath]),
      ...['posix', join(directory, 'data')], // needs a file system with extended attributes, else it says so and ends
    ],
    directory,
    stopSignal: 'TERM',
    env: {
      PATH: process.env.PATH,
      ROOT_ACCESS_KEY_ID: config.accessKeyId,
      ROOT_SECRET_ACCESS_KEY: config.secretAccessKey,
    },
  });
  await server.whenReady('the S3 server', () => answers(port));
  return {
    config,
    env: {
      S3_ENDPOINT: config.endpoint,
      S3_BUCKET: config.bucket,
      S3_REGION: config.region,
      S3_ACCESS_KEY_ID: config.accessKeyId,
      S3_SECRET_ACCESS_KEY: config.secretAccessKey,
      S3_FORCE_PATH_STYLE: 'true',
    },
    bucketDirectory,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    const end = (answered: boolean) => {
      socket.destroy();
      resolve(answered);
    };
    socket.once('connect', () => end(true));
    socket.once('error', () => end(false));
  });
}
