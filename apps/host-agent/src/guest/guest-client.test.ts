import { createHash, randomBytes } from 'node:crypto';
import type { ServerHttp2Stream } from 'node:http2';
import { Readable } from 'node:stream';
import { encodeFrame, frameType } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Guest } from './guest.ts';
import { connectGuest } from './guest-client.ts';
import { HostileGuest, type HostileGuestOptions } from './hostile-guest.ts';

const log = createLogger({ name: 'test', level: 'silent' });
const health = { protocol: 1, agent_version: 'x', kernel: 'x', boot_id: 'x', uptime_ms: 1, generation: 0, execs: 0 };

let directory: TemporaryDirectory;
let hostile: HostileGuest;
let guest: Guest;

beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(async () => {
  await guest?.[Symbol.asyncDispose]();
  await hostile?.[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
});

async function meet(options: Omit<HostileGuestOptions, 'directory'>): Promise<void> {
  hostile = await HostileGuest.listen({ directory: directory.path, ...options });
  guest = connectGuest(hostile.vmm, { log });
}

function answerText(stream: ServerHttp2Stream, text: string, status = 200): void {
  stream.respond({ ':status': status });
  stream.end(text);
}

const answerJson = (stream: ServerHttp2Stream, body: unknown, status = 200): void =>
  answerText(stream, JSON.stringify(body), status);

describe('the greeting', () => {
  it('is found behind bytes of an earlier connection', async () => {
    await meet({
      greet: () => Buffer.concat([randomBytes(100_000), Buffer.from('FUSE/1 reFUSE/1 ready\n')]),
      onStream: (stream) => answerJson(stream, health),
    });
    expect(await guest.health()).toEqual(health);
  });

  it('is asked for again on a new connection when it does not come', async () => {
    await meet({
      greet: (connection) => (connection > 1 ? 'FUSE/1 ready\n' : ''),
      onStream: (stream) => answerJson(stream, health),
    });
    expect(await guest.health()).toEqual(health);
    expect(hostile.connections).toBe(2);
  });

  it('is given up on when bytes without end come in its place', async () => {
    await meet({
      greet: (connection) => (connection > 1 ? 'FUSE/1 ready\n' : Buffer.alloc(5_000_000)),
      onStream: (stream) => answerJson(stream, health),
    });
    expect(await guest.health()).toEqual(health);
  });
});

describe('an answer', () => {
  it.each([
    ['is no JSON', (stream: ServerHttp2Stream) => answerText(stream, '{"protocol":')],
    ['is not what the schema says', (stream: ServerHttp2Stream) => answerJson(stream, { ...health, generation: -1 })],
    ['is over the bound', (stream: ServerHttp2Stream) => answerText(stream, ' '.repeat(9_000_000))],
    ['is an error without a body', (stream: ServerHttp2Stream) => answerText(stream, '', 500)],
    ['has a code that no guest may claim', (stream: ServerHttp2Stream) => refuse(stream, 'forbidden', 403)],
    ['is reset', (stream: ServerHttp2Stream) => stream.close(2)],
  ])('that %s is `unavailable`', async (_, onStream) => {
    await meet({ onStream });
    await expect(guest.health()).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('with a known code keeps it, without control characters', async () => {
    await meet({ onStream: (stream) => refuse(stream, 'not_found', 404, 'no \u001b[31msuch\u0000 exec') });
    await expect(guest.execStatus('x')).rejects.toMatchObject({ code: 'not_found', message: 'no  [31msuch  exec' });
  });

  it('that does not come lets the caller go when the caller wants to', async () => {
    await meet({ onStream: () => {} });
    await expect(guest.health(AbortSignal.timeout(50))).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  it('is asked for again on the next connection when the channel was cut', async () => {
    let asked = 0;
    await meet({ onStream: (stream) => (++asked === 1 ? hostile.cut() : answerJson(stream, health)) });
    expect(await guest.health()).toEqual(health);
    expect(asked).toBe(2);
  });
});

describe('a VMM that ended', () => {
  it('fails what waits for the channel with vm_lost', async () => {
    await meet({ greet: () => '' });
    const waiting = guest.health();
    setTimeout(() => hostile.die(), 20);
    await expect(waiting).rejects.toMatchObject({ code: 'vm_lost' });
    await expect(guest.sync()).rejects.toMatchObject({ code: 'vm_lost' });
  });

  it('fails what runs with vm_lost, even when its end is known only after the cut', async () => {
    await meet({
      onStream: () => {
        hostile.cut();
        setTimeout(() => hostile.die(), 200);
      },
    });
    await expect(guest.exec('x', { spec: { argv: ['true'], stdin: false } })).rejects.toMatchObject({
      code: 'vm_lost',
    });
  });
});

describe('an exec', () => {
  const stdout = encodeFrame(frameType.stdout, Buffer.alloc(200_000, 'x'));
  const start = () => guest.exec('x', { spec: { argv: ['true'], stdin: false } });
  const bytesOf = async (frames: AsyncIterable<Uint8Array>) => {
    let bytes = 0;
    for await (const chunk of frames) bytes += chunk.length;
    return bytes;
  };

  it('is whole when the guest ends it, though it takes no more of the request', async () => {
    await meet({
      onStream: (stream) => {
        stream.respond({ ':status': 200 });
        stream.end(stdout);
        stream.on('finish', () => setImmediate(() => stream.close(0)));
      },
    });
    expect(await bytesOf((await start()).frames)).toBe(stdout.length);
  });

  it.each([
    ['reset', (stream: ServerHttp2Stream) => stream.destroy(new Error('reset'))],
    ['cut with the channel', () => hostile.cut()],
    [
      'cut with a goodbye',
      () => {
        for (const session of hostile.sessions) session.goaway(0);
        hostile.cut();
      },
    ],
  ])('that is %s midway is an error, never an end', async (_, breakIt) => {
    await meet({
      onStream: (stream) => {
        stream.respond({ ':status': 200 });
        stream.write(stdout, () => setTimeout(() => breakIt(stream), 20));
      },
    });
    const { frames } = await start();
    await expect(bytesOf(frames)).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('that cannot be started says why', async () => {
    await meet({
      onStream: (stream) =>
        answerJson(
          stream,
          { error: { code: 'invalid_argument', message: 'no', details: { reason: 'exec_failed' } } },
          400,
        ),
    });
    await expect(start()).rejects.toMatchObject({ code: 'invalid_argument', details: { reason: 'exec_failed' } });
  });
});

describe('a file from the guest', () => {
  const respond = (size: string, bytes: number) => (stream: ServerHttp2Stream) => {
    stream.respond({ ':status': 200, 'content-length': size });
    stream.end(Buffer.alloc(bytes));
  };

  it.each([
    ['shorter', '10', 9],
    ['longer', '10', 11],
    ['empty', '10', 0],
  ])('that is %s than its size fails', async (_, size, bytes) => {
    await meet({ onStream: respond(size, bytes) });
    await expect(guest.readFile('/x').then(({ body }) => body.toArray())).rejects.toMatchObject({
      code: 'unavailable',
    });
  });

  it.each(['-1', 'many', '1e30', ''])('of size "%s" is refused', async (size) => {
    await meet({ onStream: respond(size, 0) });
    await expect(guest.readFile('/x')).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('comes as it is, and stops when the caller aborts', async () => {
    await meet({ onStream: respond('300000', 300_000) });
    const { sizeBytes, body } = await guest.readFile('/x');
    expect(sizeBytes).toBe(300_000);
    expect(Buffer.concat(await body.toArray()).length).toBe(300_000);
    const stop = new AbortController();
    const second = await guest.readFile('/x', stop.signal);
    stop.abort(new Error('enough'));
    await expect(second.body.toArray()).rejects.toThrow('enough');
  });

  it('that is cut fails', async () => {
    await meet({
      onStream: (stream) => {
        stream.respond({ ':status': 200, 'content-length': '100' });
        stream.write(Buffer.alloc(50), () => setTimeout(() => hostile.cut(), 20));
      },
    });
    const { body } = await guest.readFile('/x');
    await expect(body.toArray()).rejects.toMatchObject({ code: 'unavailable' });
  });
});

describe('a file to the guest', () => {
  const content = randomBytes(3_000_000);
  const sha256 = createHash('sha256').update(content).digest('hex');

  it('arrives whole from a stream and from bytes', async () => {
    await meet({
      onStream: async (stream) => {
        const received = Buffer.concat(await stream.toArray());
        const sum = createHash('sha256').update(received).digest('hex');
        answerJson(stream, { size_bytes: received.length, sha256: sum }, 201);
      },
    });
    const parts = Array.from({ length: 30 }, (_, number) => content.subarray(number * 100_000, (number + 1) * 100_000));
    expect(await guest.writeFile({ path: '/x' }, Readable.from(parts))).toEqual({ size_bytes: 3_000_000, sha256 });
    expect(await guest.writeFile({ path: '/x' }, content)).toEqual({ size_bytes: 3_000_000, sha256 });
  });

  it('that is refused before it is read fails with the reason, and the source is released', async () => {
    await meet({ onStream: (stream) => refuse(stream, 'conflict', 409, 'a directory is there') });
    const endless = new Readable({
      read() {
        this.push(Buffer.alloc(65_536));
      },
    });
    await expect(guest.writeFile({ path: '/x' }, endless)).rejects.toMatchObject({ code: 'conflict' });
    expect(endless.destroyed).toBe(true);
  });

  it("whose source fails is cut at the guest and fails with the source's error", async () => {
    const ends: string[] = [];
    let begun: () => void = () => {};
    const beginning = new Promise<void>((resolve) => {
      begun = resolve;
    });
    await meet({
      onStream: (stream) => {
        begun();
        stream.resume();
        stream.on('end', () => ends.push('end'));
        stream.on('aborted', () => ends.push('aborted'));
      },
    });
    const failing = Readable.from(
      (async function* () {
        yield Buffer.alloc(10);
        await beginning;
        throw new Error('the disk broke');
      })(),
    );
    await expect(guest.writeFile({ path: '/x' }, failing)).rejects.toThrow('the disk broke');
    await expect.poll(() => ends[0]).toBe('aborted');
  });
});

function refuse(stream: ServerHttp2Stream, code: string, status: number, message = 'no'): void {
  answerJson(stream, { error: { code, message } }, status);
}
