import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FuseClient } from './client.ts';
import { FuseConnectionError, IntegrityError, isNotFound } from './errors.ts';
import { jsonLines } from './json-lines.ts';
import { type InsideScript, TestInside } from './test-inside.ts';

async function inside(script: Partial<InsideScript> = {}) {
  const server = await TestInside.start(script);
  const client = new FuseClient({ baseUrl: server.url, token: 'secret', random: () => 0.01, retries: 20 });
  return { server, files: client.environments.files('e') };
}

const streamOf = (bytes: Uint8Array, pieces: number) =>
  ReadableStream.from(
    (function* () {
      for (let at = 0; at < bytes.length; at += pieces) yield bytes.subarray(at, at + pieces);
    })(),
  );

const cuts = (at: readonly number[]) => {
  const left = [...at];
  return () => left.pop();
};

describe('files', () => {
  it('are read and written byte for byte, however often connections break', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 300_000 }),
        fc.integer({ min: 1, max: 70_000 }),
        fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 5 }),
        async (bytes, pieces, cutAt) => {
          const { server, files } = await inside({ cut: cuts(cutAt), pieceBytes: pieces });
          await using _ = server;
          const { size_bytes } = await files.writeFile('/f', () => streamOf(bytes, pieces));
          expect(size_bytes).toBe(bytes.length);
          server.script.cut = cuts(cutAt);
          expect(Buffer.compare(await files.readFile('/f'), bytes)).toBe(0);
          server.script.cut = cuts(cutAt);
          const start = Math.floor(bytes.length / 3);
          const part = await files.readFile('/f', { start, end: bytes.length - 1 });
          if (bytes.length > 0) expect(Buffer.compare(part, bytes.subarray(start))).toBe(0);
        },
      ),
      { numRuns: 15 },
    );
  });

  it('that change while they are read are an error, never a mixture', async () => {
    const { server, files } = await inside({ files: new Map([['/f', new Uint8Array(200_000).fill(1)]]) });
    await using _ = server;
    server.script.cut = cuts([0.5]);
    const { body, mode, sizeBytes } = await files.open('/f');
    expect([mode, sizeBytes]).toEqual(['0640', 200_000]);
    server.script.files.set('/f', new Uint8Array(200_001).fill(2));
    await expect(new Response(body).arrayBuffer()).rejects.toBeInstanceOf(IntegrityError);
  });

  it('are text where an encoding is given, ranges as in Node, and typed errors where they are not', async () => {
    const { server, files } = await inside({ files: new Map([['/f', new TextEncoder().encode('grüße')]]) });
    await using _ = server;
    expect(await files.readFile('/f', { encoding: 'utf8' })).toBe('grüße');
    expect(await files.readFile('/f', { encoding: 'utf8', start: 1, end: 3 })).toBe('rü');
    await expect(files.readFile('/g')).rejects.toSatisfy(isNotFound);
    await expect(files.createReadStream('/g')).rejects.toSatisfy(isNotFound);
  });

  it('are written by a stream when it is closed, and not at all when it is aborted or cut', async () => {
    const { server, files } = await inside();
    await using _ = server;
    const writer = files.createWriteStream('/f', { mode: 0o600, uid: 0 }).getWriter();
    await writer.write(new Uint8Array(100_000).fill(1));
    await writer.write(new Uint8Array(100_000).fill(2));
    await writer.close();
    expect(server.script.files.get('/f')?.length).toBe(200_000);
    expect(server.seen[0]).toBe('PUT /v1/environments/e/files?path=%2Ff&mode=0600&uid=0');
    const aborted = files.createWriteStream('/g').getWriter();
    await aborted.write(new Uint8Array(100_000));
    await aborted.abort(new Error('enough'));
    server.script.cut = cuts([0.1]);
    const cut = files.createWriteStream('/g').getWriter();
    const failed = (async () => {
      await cut.write(new Uint8Array(100_000));
      await cut.close();
    })();
    await expect(failed).rejects.toBeInstanceOf(FuseConnectionError);
    cut.closed.catch(() => {});
    expect(server.script.files.has('/g')).toBe(false);
  });
});

describe('watch', () => {
  it('goes on after a cut, and says that it may have missed something', async () => {
    const { server, files } = await inside({
      watch: [
        [{ type: 'ready' }, { type: 'created', path: '/d/a' }, { type: 'heartbeat' }],
        [{ type: 'ready' }, { type: 'modified', path: '/d/a' }],
        [{ type: 'ready' }, { type: 'removed', path: '/d' }],
      ],
    });
    await using _ = server;
    const events: string[] = [];
    for await (const { type, path } of files.watch('/d', { recursive: true })) events.push(`${type} ${path ?? ''}`);
    expect(events).toEqual(['ready ', 'created /d/a', 'overflow ', 'modified /d/a', 'overflow ', 'removed /d']);
  });
});

describe('json lines', () => {
  it('come out as they went in, wherever they are cut', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.json()), fc.integer({ min: 1, max: 40 }), async (values, pieces) => {
        const text = values.map((value) => `${JSON.stringify(JSON.parse(value))}\n`).join('');
        const found: unknown[] = [];
        for await (const value of jsonLines(streamOf(new TextEncoder().encode(text), pieces), 1_000)) found.push(value);
        expect(found).toEqual(values.map((value) => JSON.parse(value)));
      }),
    );
  });

  it('of random bytes are values or a typed error', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => {
        try {
          for await (const _ of jsonLines(streamOf(bytes, 7), 1_000));
        } catch (error) {
          expect(String(error)).toContain('a line that is not JSON');
        }
      }),
    );
  });
});
