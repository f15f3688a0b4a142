/** Guests that lie about files, watches, tunnels and healthchecks: what comes of it is what the protocol knows, or an error; never more, never a hang. */
import { randomBytes } from 'node:crypto';
import type { ServerHttp2Stream } from 'node:http2';
import { Readable } from 'node:stream';
import { AppError, encodeFrame, type FileOperation, fileOperations, frameType, WatchEvent } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Guest, GuestTunnel } from './guest.ts';
import { connectGuest } from './guest-client.ts';
import { HostileGuest } from './hostile-guest.ts';

const log = createLogger({ name: 'test', level: 'silent' });

let directory: TemporaryDirectory;
let hostile: HostileGuest;
let guest: Guest;
let answer: (stream: ServerHttp2Stream, path: string) => void;

beforeEach(async () => {
  directory = await temporaryDirectory();
  hostile = await HostileGuest.listen({
    directory: directory.path,
    onStream: (stream, path) => answer(stream, path),
  });
  guest = connectGuest(hostile.vmm, { log });
});
afterEach(async () => {
  await guest[Symbol.asyncDispose]();
  await hostile[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
});

const query = new URLSearchParams({ path: '/x' });
const head = {
  'content-length': '3',
  'file-size': '10',
  'file-mode': '0644',
  'file-uid': '0',
  'file-gid': '0',
  'file-modified-ms': '1700000000000',
};
const text = (stream: ServerHttp2Stream, body: string | Buffer, status = 200) => {
  stream.respond({ ':status': status });
  stream.end(body);
};
const unavailable = { code: 'unavailable' };

/** The error of ours that came, or what came. */
async function outcome<T>(work: Promise<T>): Promise<T | AppError> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
}

describe('the head of a file', () => {
  it('is told as it is', async () => {
    answer = (stream) => {
      stream.respond({ ':status': 200, ...head });
      stream.end('abc');
    };
    const file = await guest.openFile(query);
    const { head: told } = file;
    expect(told).toEqual({ lengthBytes: 3, sizeBytes: 10, mode: '0644', uid: 0, gid: 0, modifiedMs: 1.7e12 });
    expect(Buffer.concat(await file.body.toArray()).toString()).toBe('abc');
  });

  it('is refused when anything of it is missing or no number', async () => {
    for (const name of Object.keys(head))
      for (const value of [undefined, '', '-x', '1e3', '0x10', ' 1', '99999999999999999', 'a\tb']) {
        answer = (stream) => {
          const { [name]: _, ...rest } = head as Record<string, string>;
          stream.respond({ ':status': 200, ...rest, ...(value === undefined ? {} : { [name]: value }) });
          stream.end('abc');
        };
        await expect(guest.openFile(query), `${name}: ${value}`).rejects.toMatchObject(unavailable);
      }
  });

  it('that says more or less than comes is an error of the bytes', async () => {
    for (const bytes of [0, 2, 4, 1_000_000]) {
      answer = (stream) => {
        stream.respond({ ':status': 200, ...head });
        stream.end(Buffer.alloc(bytes));
      };
      const read = guest.openFile(query).then(({ body }) => body.toArray());
      await expect(read, String(bytes)).rejects.toMatchObject(unavailable);
    }
  });
});

describe('a file operation', () => {
  const operate = (name: FileOperation) => guest.fileOperation(name, { path: '/x' } as never); // a hostile guest does not look at it

  it('with an answer of any JSON is what the contract knows, or an error', async () => {
    const names = Object.keys(fileOperations) as FileOperation[]; // its keys are that
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...names), fc.json(), async (name, json) => {
        answer = (stream) => text(stream, json);
        const result = await outcome(operate(name));
        if (result instanceof AppError) expect(result.code).toBe('unavailable');
        else expect(fileOperations[name].response.safeParse(result).success).toBe(true);
      }),
      { numRuns: 200 },
    );
  });

  it('with an answer of any bytes, any status and any error is an error', async () => {
    const bodies = fc.oneof(
      fc.uint8Array({ maxLength: 2_000 }).map((bytes) => Buffer.from(bytes)),
      fc
        .record({ code: fc.string(), message: fc.string(), details: fc.dictionary(fc.string(), fc.string()) })
        .map((error) => Buffer.from(JSON.stringify({ error }))),
    );
    const believed = ['invalid_argument', 'not_found', 'conflict', 'payload_too_large', 'unavailable'];
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 200, max: 599 }), bodies, async (status, body) => {
        answer = (stream) => text(stream, [204, 205, 304].includes(status) ? '' : body, status);
        const result = await outcome(operate('stat'));
        expect(result).toBeInstanceOf(AppError);
        expect(believed).toContain((result as AppError).code);
      }),
      { numRuns: 200 },
    );
  });

  it('that was cut is not done twice where that would matter', async () => {
    const asked: string[] = [];
    answer = (_stream, path) => {
      asked.push(path);
      hostile.cut();
    };
    await expect(guest.fileOperation('move', { from: '/a', to: '/b' })).rejects.toMatchObject(unavailable);
    expect(asked).toEqual(['/v1/files/move']);
    await expect(operate('stat')).rejects.toMatchObject(unavailable);
    expect(asked.length).toBe(4);
  });

  it('is aborted at the guest with its caller', async () => {
    const aborted = new Promise((resolve) => {
      answer = (stream) => stream.once('aborted', resolve).resume();
    });
    const stop = new AbortController();
    const operation = guest.fileOperation('search', { path: '/', pattern: 'x' }, stop.signal);
    setTimeout(() => stop.abort(new Error('enough')), 50);
    await expect(operation).rejects.toThrow('enough');
    await aborted;
  });
});

describe('a watch', () => {
  const lines = async () => Buffer.concat(await (await guest.watchFiles(query)).toArray()).toString();

  it('comes as it is, wherever it is cut into pieces', async () => {
    const events = [
      { type: 'ready' },
      { type: 'created', path: '/x/é\n', is_directory: false },
      { type: 'overflow' },
      { type: 'removed', path: '/x' },
    ];
    const all = Buffer.from(events.map((event) => `${JSON.stringify(event)}\n`).join(''));
    answer = async (stream) => {
      stream.respond({ ':status': 200 });
      for (let at = 0; at < all.length; at += 7) {
        stream.write(all.subarray(at, at + 7));
        await new Promise((resolve) => setImmediate(resolve));
      }
      stream.end();
    };
    expect(await lines()).toBe(all.toString());
  });

  it('of any bytes is lines that the contract knows, or an error', async () => {
    const event = fc.record({ type: fc.constantFrom('ready', 'created', 'bad'), path: fc.string() });
    const piece = fc.oneof(
      event.map((each) => Buffer.from(`${JSON.stringify(each)}\n`)),
      fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 5 }), async (pieces) => {
        answer = (stream) => text(stream, Buffer.concat(pieces));
        const result = await outcome(lines());
        if (result instanceof AppError) expect(result.code).toBe('unavailable');
        else for (const line of result.split('\n').slice(0, -1)) WatchEvent.parse(JSON.parse(line));
      }),
      { numRuns: 200 },
    );
  });

  it('of a line without end, or cut in a line, fails', async () => {
    answer = (stream) => text(stream, `{"type":"ready","path":"${'x'.repeat(100_000)}`);
    await expect(lines()).rejects.toMatchObject(unavailable);
    answer = (stream) => text(stream, '{"type":"ready"}');
    await expect(lines()).rejects.toMatchObject(unavailable);
  });
});

describe('a tar', () => {
  it('is whole, or an error', async () => {
    const bytes = randomBytes(300_000);
    const read = async () => Buffer.concat(await (await guest.openTar(query)).toArray());
    answer = (stream) => text(stream, bytes);
    expect((await read()).equals(bytes)).toBe(true);
    answer = (stream) => {
      stream.respond({ ':status': 200 });
      stream.write(bytes, () => setTimeout(() => stream.destroy(new Error('reset')), 20));
    };
    await expect(read()).rejects.toMatchObject(unavailable);
  });

  it('is read no faster than it is taken', async () => {
    let sent = 0;
    answer = (stream) => {
      stream.respond({ ':status': 200 });
      const endless = new Readable({
        read() {
          sent += 65_536;
          this.push(Buffer.alloc(65_536));
        },
      });
      endless.pipe(stream);
    };
    const body = await guest.openTar(query);
    body.once('data', () => body.pause());
    let before = -1;
    while (before !== sent) {
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    expect(sent).toBeLessThan(24 * 1_048_576);
    body.destroy();
  });

  it('that is extracted is answered with counts, or an error', async () => {
    answer = (stream) => {
      stream.resume().on('end', () => text(stream, '{"files":1,"directories":0,"links":0,"bytes":5}'));
    };
    expect(await guest.extractTar(query, Readable.from([randomBytes(200_000)]))).toMatchObject({ files: 1 });
    answer = (stream) => text(stream, '{"files":"many"}');
    await expect(guest.extractTar(query, new Uint8Array())).rejects.toMatchObject(unavailable);
  });
});

describe('a tunnel', () => {
  const stdout = (bytes: Uint8Array) => encodeFrame(frameType.stdout, bytes);
  const serverEnd = encodeFrame(frameType.stdinEnd, new Uint8Array());
  const read = async (tunnel: GuestTunnel) => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of tunnel.bytes()) chunks.push(chunk);
    return Buffer.concat(chunks);
  };

  it('carries bytes both ways, and each end for itself', async () => {
    answer = async (stream) => {
      stream.respond({ ':status': 200 });
      stream.write(stdout(Buffer.from('first')));
      stream.write(serverEnd);
      const received = Buffer.concat(await stream.toArray());
      ended.push(received);
      stream.end();
    };
    const ended: Buffer[] = [];
    const tunnel = await guest.tunnel(80);
    expect((await read(tunnel)).toString()).toBe('first');
    const bytes = randomBytes(500_000);
    for (let at = 0; at < bytes.length; at += 50_000)
      expect(await tunnel.write(bytes.subarray(at, at + 50_000))).toBe(true);
    tunnel.end();
    await tunnel.closed();
    expect(ended[0]?.equals(bytes)).toBe(true);
    expect(await tunnel.write(Buffer.from('more'))).toBe(false);
  });

  it('that is reset, or ends without its server’s end, is an error', async () => {
    answer = (stream) => {
      stream.respond({ ':status': 200 });
      stream.write(stdout(Buffer.from('x')), () => setTimeout(() => stream.destroy(new Error('reset')), 20));
    };
    await expect(read(await guest.tunnel(80))).rejects.toMatchObject(unavailable);
    answer = (stream) => text(stream, Buffer.from(stdout(Buffer.from('x'))));
    await expect(read(await guest.tunnel(80))).rejects.toMatchObject(unavailable);
  });

  it('of any bytes is what its frames hold, or an error', async () => {
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(stdout(bytes))),
      fc.constant(Buffer.from(serverEnd)),
      fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 6 }), async (pieces) => {
        answer = (stream) => text(stream, Buffer.concat(pieces));
        const tunnel = await guest.tunnel(80);
        const result = await outcome(read(tunnel));
        if (result instanceof AppError) expect(result.code).toBe('unavailable');
        else await outcome(tunnel.closed());
        tunnel.abort();
      }),
      { numRuns: 200 },
    );
  });

  it('that is refused says why', async () => {
    const error = { code: 'conflict', message: 'nothing listens', details: { reason: 'connection_refused' } };
    answer = (stream) => text(stream, JSON.stringify({ error }), 409);
    await expect(guest.tunnel(80)).rejects.toMatchObject({ code: 'conflict', details: error.details });
  });
});

describe('a healthcheck', () => {
  it('is absent, a verdict, or an error', async () => {
    answer = (stream) => text(stream, '{"error":{"code":"not_found","message":"none"}}', 404);
    expect(await guest.healthcheck()).toBeUndefined();
    answer = (stream) => text(stream, '{"state":"failing","since_ms_ago":5,"failures":3,"message":"x"}');
    expect(await guest.healthcheck()).toMatchObject({ state: 'failing', failures: 3 });
    for (const lie of ['{"state":"fine","since_ms_ago":1}', '{"state":"passing","since_ms_ago":-1}', '[]']) {
      answer = (stream) => text(stream, lie);
      await expect(guest.healthcheck(), lie).rejects.toMatchObject(unavailable);
    }
  });
});
