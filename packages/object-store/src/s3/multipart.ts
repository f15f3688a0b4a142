/**
 * One multipart upload. It differs from lib-storage's in what happens when it fails: parts on their way are cut, the rest of the source is not
 * read, and the promise rejects after the server has dropped the parts. Before \`complete\` nothing is visible.
 */
import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  HeadObjectCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { AppError } from '@fuse/contract';
import type { Bucket } from './bucket.ts';
import { MAX_PARTS, PART_BYTES, type Part } from './parts.ts';
import { onS3 } from './s3-errors.ts';
import type { ObjectHeaders } from './sum-record.ts';

const PARTS_AT_ONCE = 4;

export interface MultipartUpload {
  bucket: Bucket;
  name: string;
  headers: ObjectHeaders;
  parts: AsyncIterable<Part>;
  /** Aborted here when a part fails, so that a waiting source stops; aborted by the caller to stop everything. */
  stop: AbortController;
  /** When every part is there. The object becomes visible after it. */
  beforeComplete: () => Promise<void>;
}

export async function uploadMultipart(upload: MultipartUpload): Promise<void> {
  const { bucket, name, headers } = upload;
  const target = { Bucket: bucket.name, Key: name };
  // Not cut short: an upload whose id never arrived could not be aborted.
  const { UploadId } = await onS3(bucket.client.send(new CreateMultipartUploadCommand({ ...target, ...headers })));
  if (UploadId === undefined) throw new AppError('unavailable', 'the S3 server began an upload without an id');
  try {
    const Parts = await uploadParts(upload, UploadId);
    // From here on it is not cut short either: nobody could tell whether it took place.
    await upload.beforeComplete();
    const complete = new CompleteMultipartUploadCommand({ ...target, UploadId, MultipartUpload: { Parts } });
    await onS3(bucket.client.send(complete)).catch(async (error: unknown) => {
      if (!(await isThere(bucket, name, headers))) throw error; // a retry finds no upload when the first try's answer was lost
    });
  } catch (error) {
    await dropParts(bucket, name, UploadId);
    throw error;
  }
}

async function uploadParts({ bucket, name, parts, stop }: MultipartUpload, UploadId: string): Promise<CompletedPart[]> {
  const sent: CompletedPart[] = [];
  const running = new Set<Promise<void>>();
  const send = async ({ number, bytes }: Part) => {
    const command = new UploadPartCommand({
      Bucket: bucket.name,
      Key: name,
      UploadId,
      PartNumber: number,
      Body: bytes,
    });
    const { ETag } = await onS3(bucket.client.send(command, { abortSignal: stop.signal }));
    if (ETag === undefined) throw new AppError('unavailable', 'the S3 server took a part without an ETag');
    sent.push({ PartNumber: number, ETag });
  };
  try {
    for await (const part of parts) {
      if (part.number > MAX_PARTS)
        throw new AppError('payload_too_large', `the object is larger than ${MAX_PARTS * PART_BYTES} bytes`);
      if (running.size >= PARTS_AT_ONCE) await Promise.race(running);
      stop.signal.throwIfAborted();
      const task: Promise<void> = send(part)
        .catch((error: unknown) => stop.abort(error))
        .finally(() => running.delete(task));
      running.add(task);
    }
    await Promise.all(running);
    stop.signal.throwIfAborted();
  } catch (error) {
    stop.abort(error); // cuts the parts on their way
    await Promise.all(running);
    throw stop.signal.reason; // what went wrong first
  }
  return sent.sort((a, b) => (a.PartNumber ?? 0) - (b.PartNumber ?? 0));
}

async function isThere(bucket: Bucket, name: string, { Metadata }: ObjectHeaders): Promise<boolean> {
  const head = new HeadObjectCommand({ Bucket: bucket.name, Key: name });
  const found = await bucket.client.send(head).catch(() => undefined); // the caller throws its own error then
  return found?.Metadata?.['fuse-upload'] === Metadata['fuse-upload'];
}

async function dropParts(bucket: Bucket, name: string, UploadId: string): Promise<void> {
  const abort = new AbortMultipartUploadCommand({ Bucket: bucket.name, Key: name, UploadId });
  // The first error is the one to tell; what this leaves, the next start's check drops.
  await bucket.client.send(abort).catch(() => undefined);
}
