import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { startS3Server } from '@fuse/testing';
import { describeObjectStore } from '../object-store.contract.ts';
import { openBucket } from './bucket.ts';
import { S3Store } from './s3-store.ts';

describeObjectStore('S3 (versitygw)', async () => {
  const server = await startS3Server();
  const config = { ...server.config, prefix: 'some/prefix' };
  const store = new S3Store(config);
  const bucket = openBucket(config);
  return {
    store,
    keepsConnections: true,
    remains: async () => {
      const objects = await bucket.client.send(new ListObjectsV2Command({ Bucket: bucket.name }));
      const uploads = await bucket.client.send(new ListMultipartUploadsCommand({ Bucket: bucket.name }));
      return [
        ...(objects.Contents ?? []).map(({ Key }) => `object ${Key}`),
        ...(uploads.Uploads ?? []).map(({ Key, UploadId }) => `upload ${UploadId} of ${Key}`),
      ];
    },
    damage: async (key, offset) => {
      const target = { Bucket: bucket.name, Key: bucket.objects + key };
      const { Body, Metadata, ContentType } = await bucket.client.send(new GetObjectCommand(target));
      const bytes = await buffer(Body as Readable); // as in every answer on Node.js
      bytes[offset] = (bytes[offset] ?? 0) ^ 1;
      await bucket.client.send(new PutObjectCommand({ ...target, Metadata, ContentType, Body: bytes }));
    },
    [Symbol.asyncDispose]: async () => {
      bucket.client.destroy();
      await store[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
});
