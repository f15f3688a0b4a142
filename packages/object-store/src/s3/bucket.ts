/**
 * What every S3 operation shares: client, bucket, and the names in it: `objects/<key>` and `sums/<key>/<id>` (sum-record.ts), below the prefix.
 */
import { S3Client } from '@aws-sdk/client-s3';
import type { S3StoreConfig } from '../config.ts';
import { hasS3Code, NAME_CONFLICTS } from './s3-errors.ts';

const CONNECT_TIMEOUT_MS = 5_000;
/** Until an answer begins; a part goes up in it. */
const ANSWER_TIMEOUT_MS = 120_000;
const MAX_SOCKETS = 128;

export interface Bucket {
  client: S3Client;
  /** The bucket's name. */
  name: string;
  /** Prefix of the names of objects, with its "/". */
  objects: string;
  /** Prefix of the names of sum records, with its "/". */
  sums: string;
}

export function openBucket(config: S3StoreConfig): Bucket {
  const root = config.prefix === undefined ? '' : `${config.prefix}/`;
  const client = new S3Client({
    region: config.region,
    ...(config.endpoint === undefined ? {} : { endpoint: config.endpoint }),
    forcePathStyle: config.forcePathStyle,
    credentials: { accessKeyId: config.accessKeyId, secretAccessKey: config.secretAccessKey },
    maxAttempts: 4,
    // The SDK's own CRC headers and trailers are refused by several servers. Uploads are covered by the SHA-256 in their
    // signature (http) or by TLS, and by our own sum when they are read.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT_MS,
      requestTimeout: ANSWER_TIMEOUT_MS,
      throwOnRequestTimeout: true,
      httpAgent: { keepAlive: true, maxSockets: MAX_SOCKETS },
      httpsAgent: { keepAlive: true, maxSockets: MAX_SOCKETS },
    },
  });
  client.middlewareStack.add(retryFolderRaces, { step: 'finalizeRequest', priority: 'low', name: 'retryFolderRaces' });
  return { client, name: config.bucket, objects: `${root}objects/`, sums: `${root}sums/` };
}

/**
 * A server over a file system (versitygw) refuses a put when it is just removing the folder that another delete left empty. It stands inside
 * the SDK's retries, which try again what is marked so.
 */
function retryFolderRaces<Args, Output>(next: (args: Args) => Promise<Output>): (args: Args) => Promise<Output> {
  return async (args) => {
    try {
      return await next(args);
    } catch (error) {
      if (hasS3Code(error, ...NAME_CONFLICTS)) Object.assign(error, { $retryable: { throttling: false } });
      throw error;
    }
  };
}
