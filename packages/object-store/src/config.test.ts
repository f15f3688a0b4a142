import { describe, expect, it } from 'vitest';
import { objectStoreConfigFromEnv } from './config.ts';

const s3 = {
  S3_ENDPOINT: 'https://s3.example.com:9000/',
  S3_BUCKET: 'outputs',
  S3_REGION: 'eu-west-1',
  S3_ACCESS_KEY_ID: 'AKIA',
  S3_SECRET_ACCESS_KEY: 'hidden-secret',
};

const refusal = (env: Record<string, string | undefined>): unknown => {
  try {
    return objectStoreConfigFromEnv(env);
  } catch (error) {
    return error;
  }
};

describe('object store configuration', () => {
  it('is a directory under the home of Fuse when no S3 variable is set', () => {
    expect(objectStoreConfigFromEnv({ HOME: '/home/u' })).toEqual({ kind: 'file', directory: '/home/u/.fuse/objects' });
    expect(objectStoreConfigFromEnv({ FUSE_HOME: '/data', S3_BUCKET: '' })).toEqual({
      kind: 'file',
      directory: '/data/objects',
    });
    expect(objectStoreConfigFromEnv({ FUSE_OBJECTS_DIR: '/objects' })).toEqual({ kind: 'file', directory: '/objects' });
  });

  it('is S3 with all that is set', () => {
    expect(objectStoreConfigFromEnv({ ...s3, S3_PREFIX: '/fuse/prod/', S3_FORCE_PATH_STYLE: 'False' })).toEqual({
      kind: 's3',
      endpoint: 'https://s3.example.com:9000',
      bucket: 'outputs',
      region: 'eu-west-1',
      accessKeyId: 'AKIA',
      secretAccessKey: 'hidden-secret',
      forcePathStyle: false,
      prefix: 'fuse/prod',
    });
  });

  it("puts the bucket into the path of an endpoint of one's own, and into the host name on AWS", () => {
    expect(objectStoreConfigFromEnv(s3)).toMatchObject({ forcePathStyle: true });
    expect(objectStoreConfigFromEnv({ ...s3, S3_ENDPOINT: undefined })).toMatchObject({ forcePathStyle: false });
  });

  it('needs a region on AWS only', () => {
    expect(objectStoreConfigFromEnv({ ...s3, S3_REGION: undefined })).toMatchObject({ region: 'us-east-1' });
    expect(refusal({ ...s3, S3_REGION: undefined, S3_ENDPOINT: undefined })).toMatchObject({
      message: expect.stringContaining('S3_REGION'),
    });
  });

  it('names every variable that is missing', () => {
    expect(refusal({ S3_ENDPOINT: s3.S3_ENDPOINT })).toMatchObject({
      code: 'invalid_argument',
      message: 'object store: S3_BUCKET, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY must be set for S3',
      hint: expect.stringContaining('unset every S3_* variable'),
    });
  });

  it.each([
    ['S3_ENDPOINT', 's3.example.com'],
    ['S3_ENDPOINT', 'ftp://s3.example.com'],
    ['S3_ENDPOINT', 'https://user:hidden-secret@s3.example.com'],
    ['S3_ENDPOINT', 'https://s3.example.com/outputs'],
    ['S3_BUCKET', 'no/slash'],
    ['S3_BUCKET', 'x'],
    ['S3_FORCE_PATH_STYLE', 'maybe'],
    ['S3_PREFIX', 'a/../b'],
    ['S3_PREFIX', 'x/'.repeat(60)],
  ])('refuses %s=%s by name and without secrets', (name, value) => {
    const error = refusal({ ...s3, [name]: value });
    expect(error).toMatchObject({ code: 'invalid_argument', details: { field: name } });
    expect(JSON.stringify(error) + String(error)).not.toContain('hidden-secret');
  });
});
