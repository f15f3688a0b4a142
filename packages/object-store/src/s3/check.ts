import { randomUUID } from 'node:crypto';
import { AbortMultipartUploadCommand, ListMultipartUploadsCommand, ListObjectsV2Command } from '@aws-sdk/client-s3';
import { AppError } from '@fuse/contract';
import type { S3StoreConfig } from '../config.ts';
import type { ObjectStore } from '../object-store.ts';
import type { Bucket } from './bucket.ts';
import { hasS3Code, onS3, type S3Fault, s3Error, s3Fault } from './s3-errors.ts';

const ABANDONED_AFTER_MS = 24 * 3_600_000;

/** Asks for a listing (its answer tells a wrong bucket from wrong keys, which HEAD cannot), then puts, reads and deletes a small object. */
export async function checkBucket(store: ObjectStore, bucket: Bucket, config: S3StoreConfig): Promise<void> {
  try {
    const list = new ListObjectsV2Command({ Bucket: bucket.name, Prefix: bucket.objects, MaxKeys: 1 });
    const { Name } = await onS3(bucket.client.send(list));
    if (Name === undefined) throw s3Fault('not_s3'); // a web page is taken for an empty list
    const probeKey = `.check.${randomUUID()}`;
    await store.put(probeKey, Buffer.from(probeKey));
    await store.head(probeKey);
    await store.delete(probeKey);
    await dropAbandonedUploads(bucket);
  } catch (error) {
    throw error instanceof AppError ? explained(error, config) : error;
  }
}

/** For the operator: which server, which bucket, which variable. */
function explained(error: AppError, config: S3StoreConfig): AppError {
  const where = `${config.endpoint ?? 'AWS'}, bucket "${config.bucket}"`;
  const detail = error.cause instanceof Error ? ` (${error.cause.message})` : '';
  const hint = HINT[(error.details?.reason as S3Fault | undefined) ?? 'server'];
  return new AppError('unavailable', `object store at ${where}: ${error.message}${detail}`, {
    cause: error,
    hint: hint(config),
    ...(error.details === undefined ? {} : { details: error.details }),
  });
}

const HINT: Record<S3Fault, (config: S3StoreConfig) => string> = {
  access_key: () => 'check S3_ACCESS_KEY_ID',
  secret_key: () => 'check S3_SECRET_ACCESS_KEY',
  permission: ({ bucket }) => `let this key list, get, put and delete objects in bucket "${bucket}"`,
  bucket: ({ bucket }) => `create bucket "${bucket}" or correct S3_BUCKET`,
  region: ({ region }) => `correct S3_REGION (now "${region}")`,
  connection: ({ endpoint }) =>
    `check that the server runs and that S3_ENDPOINT (now ${endpoint ?? 'AWS'}) is right (host, port, http or https)`,
  tls: () => 'check http or https in S3_ENDPOINT; for a private authority set NODE_EXTRA_CA_CERTS to its certificate',
  clock: () => 'set the clock of this machine',
  not_s3: ({ endpoint }) => `check host, port and http or https in S3_ENDPOINT (now ${endpoint ?? 'AWS'})`,
  server: () => 'look at the log of the S3 server',
};

/** What a killed process began. A server that does not list uploads, or a key that may not, does without. */
export async function dropAbandonedUploads(bucket: Bucket, nowMs = Date.now()): Promise<void> {
  const list = new ListMultipartUploadsCommand({ Bucket: bucket.name, Prefix: bucket.objects });
  const { Uploads = [] } = await bucket.client.send(list).catch((error: unknown) => {
    if (hasS3Code(error, 'AccessDenied', 'NotImplemented', 'MethodNotAllowed')) return { Uploads: [] };
    throw s3Error(error);
  });
  for (const { Key, UploadId, Initiated } of Uploads) {
    if (Initiated === undefined || nowMs - Initiated.getTime() < ABANDONED_AFTER_MS) continue;
    await onS3(bucket.client.send(new AbortMultipartUploadCommand({ Bucket: bucket.name, Key, UploadId })));
  }
}
