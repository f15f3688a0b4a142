import { setTimeout as delay } from 'node:timers/promises';
import { type S3Server, startS3Server } from '@fuse/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { S3Store } from './s3-store.ts';

describe('a presigned download', () => {
  let server: S3Server;
  let store: S3Store;
  beforeAll(async () => {
    server = await startS3Server();
    store = new S3Store(server.config);
    await store.put('runs/1/0', Buffer.from('the report'), { contentType: 'text/plain' });
  }, 600_000);
  afterAll(async () => {
    await store[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });
  const sign = async (options: { expiresInSeconds: number; downloadName?: string; contentType?: string }) =>
    (await store.presignGet('runs/1/0', options)) ?? '';

  it('needs no credentials and comes under the name and type that were asked for', async () => {
    const url = await sign({
      expiresInSeconds: 60,
      downloadName: 'naïve "report".txt',
      contentType: 'text/csv; charset=utf-8',
    });
    const answer = await fetch(url);
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe('the report');
    expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(answer.headers.get('content-disposition')).toBe(
      `attachment; filename="na_ve _report_.txt"; filename*=UTF-8''na%C3%AFve%20%22report%22.txt`,
    );
    expect(url).not.toContain(server.config.secretAccessKey);
  });

  it('comes as it was stored when nothing was asked for, in ranges too', async () => {
    const answer = await fetch(await sign({ expiresInSeconds: 60 }), { headers: { range: 'bytes=4-5' } });
    expect(answer.status).toBe(206);
    expect(answer.headers.get('content-type')).toBe('text/plain');
    expect(await answer.text()).toBe('re');
  });

  it('is refused once it has expired', async () => {
    const url = await sign({ expiresInSeconds: 1 });
    for (const deadline = performance.now() + 10_000; performance.now() < deadline; await delay(100)) {
      const answer = await fetch(url);
      const text = await answer.text();
      if (answer.status === 200) continue;
      expect(answer.status).toBe(403);
      expect(text).not.toContain('the report');
      return;
    }
    throw new Error('it never expired');
  }, 15_000);

  it('is refused when its name, type, expiry or object is changed', async () => {
    const url = await sign({ expiresInSeconds: 60, downloadName: 'a.txt', contentType: 'text/plain' });
    for (const [from, to] of [
      ['a.txt', 'b.txt'],
      ['text%2Fplain', 'text%2Fhtml'],
      ['X-Amz-Expires=60', 'X-Amz-Expires=600'],
      ['runs/1/0', 'runs/1/1'],
    ] as const) {
      expect(url).toContain(from);
      expect((await fetch(url.replace(from, to))).status).toBe(403);
    }
  });

  it('cannot be made for longer than S3 allows, or for an unclean key', async () => {
    for (const expiresInSeconds of [0, -1, 1.5, 604_801, Number.NaN])
      await expect(sign({ expiresInSeconds })).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(store.presignGet('../x', { expiresInSeconds: 1 })).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
