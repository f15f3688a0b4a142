import { DeleteObjectsCommand, ListObjectsV2Command } from '@aws-sdk/client-s3';
import { AppError } from '@fuse/contract';
import type { Bucket } from './bucket.ts';
import { onS3 } from './s3-errors.ts';

export interface Listed {
  name: string;
  sizeBytes: number;
}

/** Pages of at most 1000, which is also the most that one delete takes. */
export async function* listBelow(bucket: Bucket, prefix: string): AsyncGenerator<Listed[], void, undefined> {
  let token: string | undefined;
  do {
    const page = { Bucket: bucket.name, Prefix: prefix, MaxKeys: 1_000 };
    const more = token === undefined ? {} : { ContinuationToken: token };
    const answer = await onS3(bucket.client.send(new ListObjectsV2Command({ ...page, ...more })));
    const contents = answer.Contents ?? [];
    yield contents.map(({ Key = '', Size = 0 }) => ({ name: Key, sizeBytes: Size }));
    token = answer.IsTruncated === true ? answer.NextContinuationToken : undefined;
  } while (token !== undefined);
}

export async function deleteBelow(bucket: Bucket, prefix: string): Promise<{ objects: number; bytes: number }> {
  const deleted = { objects: 0, bytes: 0 };
  for await (const page of listBelow(bucket, prefix)) {
    if (page.length === 0) continue;
    const Objects = page.map(({ name }) => ({ Key: name }));
    const request = new DeleteObjectsCommand({ Bucket: bucket.name, Delete: { Objects, Quiet: true } });
    const { Errors = [] } = await onS3(bucket.client.send(request));
    const [first] = Errors;
    if (first !== undefined)
      throw new AppError('unavailable', `the S3 server did not delete ${Errors.length} objects (${first.Code})`);
    deleted.objects += page.length;
    deleted.bytes += page.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  }
  return deleted;
}
