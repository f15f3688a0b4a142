import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { inspect, promisify } from 'node:util';
import {
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { type S3Server, startS3Server, temporaryDirectory } from '@fuse/testing';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { S3StoreConfig } from '../config.ts';
import { drain, patternSha256, patternStream } from '../pattern.fixture.ts';
import { type Bucket, openBucket } from './bucket.ts';
import { dropAbandonedUploads } from './check.ts';
import { type S3Proxy, startS3Proxy } from './s3-proxy.fixture.ts';
import { S3Store } from './s3-store.ts';

const MIB = 1024 * 1024;
const run = promisify(execFile);

describe('S3 store under faults', () => {
  let server: S3Server;
  beforeAll(async () => {
    server = await startS3Server();
  }, 600_000);
  afterAll(() => server[Symbol.asyncDispose]());

  describe('check', () => {
    async function refusalOf(change: Partial<S3StoreConfig>): Promise<unknown> {
      const store = new S3Store({ ...server.config, ...change });
      try {
        return await store.check();
      } catch (error) {
        const shown = inspect(error, { depth: 10, showHidden: true });
        expect(shown).not.toContain(change.secretAccessKey ?? server.config.secretAccessKey);
        expect(shown).not.toContain('AWS4-HMAC');
        return error;
      } finally {
        await store[Symbol.asyncDispose]();
      }
    }

    it('passes with what is right, and leaves nothing', async () => {
      expect(await refusalOf({})).toBeUndefined();
      const bucket = openBucket(server.config);
      expect((await bucket.client.send(new ListObjectsV2Command({ Bucket: bucket.name }))).Contents ?? []).toEqual([]);
      bucket.client.destroy();
    });

    it.each<[string, Partial<S3StoreConfig>, string]>([
      ['access_key', { accessKeyId: 'nobody' }, 'S3_ACCESS_KEY_ID'],
      ['secret_key', { secretAccessKey: 'wrong-secret' }, 'S3_SECRET_ACCESS_KEY'],
      ['bucket', { bucket: 'no-such-bucket' }, 'no-such-bucket'],
      ['region', { region: 'eu-west-1' }, 'S3_REGION (now "eu-west-1")'],
      ['connection', { endpoint: 'http://127.0.0.1:1' }, 'S3_ENDPOINT (now http://127.0.0.1:1)'],
      ['connection', { endpoint: 'http://no-such-host.invalid' }, 'S3_ENDPOINT'],
    ])('names a wrong %s', async (reason, change, hint) => {
      const error = await refusalOf(change);
      expect(error).toMatchObject({ code: 'unavailable', details: { reason }, hint: expect.stringContaining(hint) });
      const { endpoint, bucket } = { ...server.config, ...change };
      expect(error).toMatchObject({
        message: expect.stringContaining(`object store at ${endpoint}, bucket "${bucket}": `),
      });
    });

    it('tells that the server speaks no TLS', async () => {
      const endpoint = server.config.endpoint.replace('http:', 'https:');
      expect(await refusalOf({ endpoint })).toMatchObject({
        details: { reason: 'tls' },
        hint: expect.stringContaining('http or https'),
      });
    });

    it('tells that the certificate is not trusted, and that the server wants TLS', async () => {
      const directory = await temporaryDirectory();
      const [certPath, keyPath] = [join(directory.path, 'cert.pem'), join(directory.path, 'key.pem')];
      const selfSigned = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
      await run('openssl', [...selfSigned, '-keyout', keyPath, '-out', certPath]);
      const secure = await startS3Server({ tls: { certPath, keyPath } });
      try {
        expect(await refusalOf(secure.config)).toMatchObject({
          details: { reason: 'tls' },
          hint: expect.stringContaining('NODE_EXTRA_CA_CERTS'),
        });
        const endpoint = secure.config.endpoint.replace('https:', 'http:');
        expect(await refusalOf({ endpoint })).toMatchObject({ hint: expect.stringContaining('http or https') });
      } finally {
        await secure[Symbol.asyncDispose]();
        await directory[Symbol.asyncDispose]();
      }
    });

    it.each([200, 403, 404])('tells that a web server answers (%i)', async (status) => {
      const web = createServer((_, answer) =>
        answer.writeHead(status, { 'content-type': 'text/html' }).end('<html>Hello</html>'),
      );
      await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
      const { port } = web.address() as AddressInfo; // it listens on TCP
      try {
        const error = await refusalOf({ endpoint: `http://127.0.0.1:${port}` });
        expect(error).toMatchObject({ code: 'unavailable', details: { reason: 'not_s3' } });
      } finally {
        web.closeAllConnections();
        web.close();
      }
    });

    it('drops uploads that were begun a day ago and never ended, and no younger ones', async () => {
      const bucket = openBucket(server.config);
      const uploads = async () =>
        (await bucket.client.send(new ListMultipartUploadsCommand({ Bucket: bucket.name }))).Uploads ?? [];
      await bucket.client.send(new CreateMultipartUploadCommand({ Bucket: bucket.name, Key: 'objects/begun' }));
      await dropAbandonedUploads(bucket);
      expect(await uploads()).toHaveLength(1);
      await dropAbandonedUploads(bucket, Date.now() + 25 * 3_600_000);
      expect(await uploads()).toHaveLength(0);
      bucket.client.destroy();
    });
  });

  describe('between store and server', () => {
    let proxy: S3Proxy;
    let store: S3Store;
    let bucket: Bucket;
    beforeEach(async () => {
      proxy = await startS3Proxy(server.config.endpoint);
      store = new S3Store({ ...server.config, endpoint: proxy.endpoint });
      bucket = openBucket(server.config);
    });
    afterEach(async () => {
      const left = await Promise.all([
        bucket.client.send(new ListObjectsV2Command({ Bucket: bucket.name })),
        bucket.client.send(new ListMultipartUploadsCommand({ Bucket: bucket.name })),
      ]);
      proxy.meddle = () => 'pass';
      await store.deletePrefix('p');
      bucket.client.destroy();
      await store[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
      expect(left[1].Uploads ?? []).toEqual([]);
    });
    const stored = async (key: string) => drain((await store.get(key)).body);
    const isPart = (url = '') => url.includes('partNumber=');
    const isCompletion = (method = '', url = '') => method === 'POST' && url.includes('uploadId=');
    const names = async () =>
      ((await bucket.client.send(new ListObjectsV2Command({ Bucket: bucket.name }))).Contents ?? []).map(
        ({ Key }) => Key,
      );

    it('tries again what the server could not do just then', async () => {
      let refusals = 0;
      proxy.meddle = ({ url }) => (isPart(url) && refusals++ < 2 ? { status: 503 } : 'pass');
      await store.put('p/a', patternStream(20 * MIB));
      expect(refusals).toBeGreaterThan(2);
      proxy.meddle = () => 'pass';
      expect((await stored('p/a')).sha256).toBe(patternSha256(20 * MIB));
    });

    it('knows an upload as complete whose answer was lost', async () => {
      let lost = 0;
      proxy.meddle = ({ method, url }) => (isCompletion(method, url) && lost++ === 0 ? 'lose-answer' : 'pass');
      const info = await store.put('p/b', patternStream(9 * MIB));
      expect(lost).toBeGreaterThan(1);
      expect(await store.head('p/b')).toEqual(info);
    });

    it('leaves nothing visible when the completion is refused', async () => {
      proxy.meddle = ({ method, url }) => (isCompletion(method, url) ? { status: 400 } : 'pass');
      await expect(store.put('p/c', patternStream(9 * MIB))).rejects.toMatchObject({ code: 'unavailable' });
      proxy.meddle = () => 'pass';
      await expect(store.head('p/c')).rejects.toMatchObject({ code: 'not_found' });
      await store.deletePrefix('p');
      expect(await names()).toEqual([]);
    });

    it('stops reading the source and drops the parts when one is refused', async () => {
      proxy.meddle = ({ url = '' }) => (url.includes('partNumber=2') ? { status: 403 } : 'pass');
      let read = 0;
      const endless = Readable.from(
        (async function* () {
          for (;;) {
            read += MIB;
            yield Buffer.alloc(MIB);
          }
        })(),
      );
      await expect(store.put('p/d', endless)).rejects.toMatchObject({
        code: 'unavailable',
        details: { reason: 'permission' },
      });
      expect(endless.destroyed).toBe(true);
      expect(read).toBeLessThan(120 * MIB);
      expect(await names()).toEqual([]);
    });

    it('cuts parts that hang when it is aborted', async () => {
      const controller = new AbortController();
      const reason = new Error('over');
      proxy.meddle = ({ url }) => {
        if (!isPart(url)) return 'pass';
        setTimeout(() => controller.abort(reason), 50);
        return 'hang';
      };
      await expect(store.put('p/e', patternStream(40 * MIB), { signal: controller.signal })).rejects.toBe(reason);
      expect(await names()).toEqual([]);
    });

    it('fails a read whose connection breaks', async () => {
      await store.put('p/f', patternStream(5 * MIB));
      proxy.meddle = ({ method }) => (method === 'GET' ? { cutAfterBytes: MIB } : 'pass');
      const read = await stored('p/f');
      expect(read.error).toMatchObject({ code: 'unavailable', details: { reason: 'connection' } });
      expect(read.sizeBytes).toBeLessThan(5 * MIB);
    });

    it('reads one request an object, two when its sum has a record', async () => {
      await store.put('p/small', patternStream(MIB));
      await store.put('p/large', patternStream(9 * MIB));
      proxy.seen.length = 0;
      await stored('p/small');
      expect(proxy.seen).toHaveLength(1);
      await stored('p/large');
      expect(proxy.seen).toHaveLength(3);
    });

    it('says so when a key is a folder of others or lies below one, on a server that cannot hold both', async () => {
      await store.put('p/a/b', Buffer.from('x'));
      await expect(store.put('p/a', Buffer.from('y'))).rejects.toMatchObject({ code: 'conflict' });
      await expect(store.put('p/a/b/c', Buffer.from('y'))).rejects.toMatchObject({ code: 'conflict' });
    });

    it('refuses an object that it did not write', async () => {
      await bucket.client.send(new PutObjectCommand({ Bucket: bucket.name, Key: 'objects/p/foreign', Body: 'x' }));
      await expect(store.get('p/foreign')).rejects.toMatchObject({ code: 'integrity_error' });
      await expect(store.head('p/foreign')).rejects.toMatchObject({ code: 'integrity_error' });
      expect(await store.delete('p/foreign')).toBe(true);
    });

    it('refuses an object whose sum record is gone', async () => {
      await store.put('p/g', patternStream(9 * MIB));
      const record = (await names()).find((name) => name?.startsWith('sums/p/g/'));
      expect(record).toBeDefined();
      await store.deletePrefix('none');
      const { DeleteObjectCommand } = await import('@aws-sdk/client-s3');
      await bucket.client.send(new DeleteObjectCommand({ Bucket: bucket.name, Key: record }));
      await expect(store.get('p/g')).rejects.toMatchObject({ code: 'integrity_error' });
    });
  });
});
