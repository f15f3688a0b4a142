import { GetObjectCommand } from '@aws-sdk/client-s3';
import { getSignedUrl } from '@aws-sdk/s3-request-presigner';
import { invalidField } from '@fuse/contract';
import { contentDisposition } from '../content-disposition.ts';
import { asciiContentType, checkContentType } from '../content-type.ts';
import type { Bucket } from './bucket.ts';

/** S3 signs for a week at most. */
const MAX_EXPIRY_SECONDS = 7 * 24 * 3_600;

export interface PresignOptions {
  expiresInSeconds: number;
  downloadName?: string;
  contentType?: string;
}

export async function presignGet(bucket: Bucket, name: string, options: PresignOptions): Promise<string> {
  const { expiresInSeconds, downloadName, contentType } = options;
  if (!Number.isInteger(expiresInSeconds) || expiresInSeconds < 1 || expiresInSeconds > MAX_EXPIRY_SECONDS)
    throw invalidField('expiresInSeconds', `must be a whole number from 1 to ${MAX_EXPIRY_SECONDS}`);
  if (contentType !== undefined) checkContentType(contentType);
  const command = new GetObjectCommand({
    Bucket: bucket.name,
    Key: name,
    ...(downloadName === undefined ? {} : { ResponseContentDisposition: contentDisposition(downloadName) }),
    ...(contentType === undefined ? {} : { ResponseContentType: asciiContentType(contentType) }),
  });
  return getSignedUrl(bucket.client, command, { expiresIn: expiresInSeconds });
}
