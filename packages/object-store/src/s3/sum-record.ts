/**
 * Where an object's sha256 is kept. S3 takes metadata at the beginning of an upload, and the sum of a stream is known at its end; to set it
 * afterwards the server would have to copy the whole object. So:
 * - known in time (the whole body is in one part, or the caller expects a sum): metadata `fuse-sha256`;
 * - else the metadata `fuse-upload` names a record of its own, `sums/<key>/<upload id>`, written after the last part and before the upload is completed.
 * The object becomes visible, or replaces another, by one atomic operation, and what it names is there already.
 * Replacing an object leaves the old record (64 bytes) until a deletePrefix above it, and so does a completion that the server refuses.
 */
import { DeleteObjectCommand, GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { asciiContentType } from '../content-type.ts';
import type { ObjectInfo } from '../object-store.ts';
import { damaged } from '../verified-body.ts';
import type { Bucket } from './bucket.ts';
import { isNoSuchKey, onS3, s3Error } from './s3-errors.ts';

export interface ObjectHeaders {
  Metadata: Record<string, string>;
  ContentType: string;
}

export interface HeadersOptions {
  contentType: string;
  sha256: string | undefined;
  /** Of this put alone. */
  uploadId: string;
}

export function objectHeaders({ contentType, sha256, uploadId }: HeadersOptions): ObjectHeaders {
  return {
    Metadata: {
      'fuse-upload': uploadId,
      'fuse-type': encodeURIComponent(contentType), // metadata is ASCII
      ...(sha256 === undefined ? {} : { 'fuse-sha256': sha256 }),
    },
    ContentType: asciiContentType(contentType),
  };
}

export async function writeSumRecord(bucket: Bucket, key: string, uploadId: string, sha256: string): Promise<void> {
  const Key = recordName(bucket, key, uploadId);
  await onS3(
    bucket.client.send(new PutObjectCommand({ Bucket: bucket.name, Key, Body: sha256, ContentType: 'text/plain' })),
  );
}

export async function deleteSumRecord(bucket: Bucket, key: string, uploadId: string): Promise<void> {
  const Key = recordName(bucket, key, uploadId);
  await onS3(bucket.client.send(new DeleteObjectCommand({ Bucket: bucket.name, Key })));
}

export interface StoredObject {
  Metadata?: Record<string, string> | undefined;
  ContentLength?: number | undefined;
  ContentRange?: string | undefined;
}

/** Undefined when the object's record is gone: it was replaced or deleted since `stored` was read. */
export async function infoOf(bucket: Bucket, key: string, stored: StoredObject): Promise<ObjectInfo | undefined> {
  const { 'fuse-upload': uploadId, 'fuse-type': type, 'fuse-sha256': inline } = stored.Metadata ?? {};
  if (uploadId === undefined || type === undefined)
    throw damaged(key, 'it was not written by Fuse, or lost its metadata');
  const sha256 = inline ?? (await readSumRecord(bucket, key, uploadId));
  if (sha256 === undefined) return undefined;
  return { key, sizeBytes: sizeOf(stored), sha256, contentType: decodeURIComponent(type) };
}

/** The upload id of an object that has a record. */
export const recordedUpload = (stored: StoredObject): string | undefined =>
  stored.Metadata?.['fuse-sha256'] === undefined ? stored.Metadata?.['fuse-upload'] : undefined;

async function readSumRecord(bucket: Bucket, key: string, uploadId: string): Promise<string | undefined> {
  try {
    const Key = recordName(bucket, key, uploadId);
    const { Body } = await bucket.client.send(new GetObjectCommand({ Bucket: bucket.name, Key }));
    return await Body?.transformToString();
  } catch (error) {
    if (isNoSuchKey(error)) return undefined;
    throw s3Error(error);
  }
}

function sizeOf({ ContentLength, ContentRange }: StoredObject): number {
  const total = ContentRange?.split('/')[1]; // "bytes 0-99/1234"
  return total === undefined ? (ContentLength ?? 0) : Number(total);
}

const recordName = (bucket: Bucket, key: string, uploadId: string): string => `${bucket.sums}${key}/${uploadId}`;
