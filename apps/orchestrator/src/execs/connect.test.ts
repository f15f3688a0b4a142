import { createHash } from 'node:crypto';
import { type ExecOpened, frameType } from '@fuse/contract';
import { FrameClient } from '@fuse/testing';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';

let scene: TestOrchestrator;
beforeAll(async () => {
  scene = await startTestOrchestrator('pglite');
  await scene.call('POST', '/v1/environments', { task_id: 'connects' });
}, 60_000);
afterAll(() => scene?.[Symbol.asyncDispose]());

const open = (execId: string, query = '') =>
  FrameClient.webSocket(
    { url: scene.orchestrator.url, token: TEST_TOKEN },
    `/v1/environments/fuse-connects/execs/${execId}/connect${query === '' ? '' : `?${query}`}`,
  );
const opened = async (client: FrameClient): Promise<ExecOpened> => {
  await client.until(({ frames }) => frames.length > 0);
  expect(client.frames[0]?.type).toBe(frameType.open);
  return client.json(frameType.open) as ExecOpened;
};
const started = (execId: string) => scene.host.started.get(execId);

describe('a connected exec', () => {
  it('is started by a spec, told as open, fed, and ends with its exit', async () => {
    const client = await open('fed');
    client.sendJson(frameType.spec, { shell: 'cat; echo err >&2; exit 7', stdin_open: true });
    expect(await opened(client)).toEqual({ exec_id: 'fed', offset: 0, stdin_bytes: 0, stdin_closed: false });
    client.send(frameType.stdin, 'hello ');
    client.send(frameType.stdin, 'there');
    client.send(frameType.stdinEnd);
    expect(await client.ended).toEqual({ code: 1000, reason: 'exited' });
    expect(client.output).toContain('hello there');
    expect(client.json(frameType.exit)).toMatchObject({ exit_code: 7, stdout_bytes: 11, stderr_bytes: 4 });
  });

  it('is started once, however often its spec is sent', async () => {
    const spec = { cmd: ['cat'], stdin_open: true };
    const first = await open('once');
    first.sendJson(frameType.spec, spec);
    first.send(frameType.stdin, 'a');
    await first.says('a');
    first.cut();
    const second = await open('once', 'tail=1000');
    second.sendJson(frameType.spec, spec);
    expect((await opened(second)).stdin_bytes).toBe(1);
    second.send(frameType.stdin, 'b');
    await second.says('ab');
    second.sendJson(frameType.signal, { signal: 'SIGKILL', tree: true });
    await second.ended;
    expect(second.json(frameType.exit)).toMatchObject({ signal: 'SIGKILL' });
    expect(started('once')).toBe(1);
  });

  it('goes on at an offset, and tells it when it ended meanwhile', async () => {
    const whole = await open('ended');
    whole.sendJson(frameType.spec, { shell: 'echo one; sleep 0.1; echo two' });
    await whole.ended;
    const first = whole.frames.find(({ type }) => type === frameType.stdout);
    const rest = await open('ended', `offset=${8 + (first?.payload.length ?? 0)}`);
    await rest.ended;
    expect(rest.output).toBe('two\n');
    expect(rest.json(frameType.exit)).toMatchObject({ exit_code: 0 });
  });

  it('is closed with the error that an answer would have had', async () => {
    const close = async (type: number, payload: string, execId = 'wrong') => {
      const client = await open(execId);
      client.send(type, payload);
      return client.ended;
    };
    expect(await close(frameType.stdin, 'x')).toMatchObject({ code: 4404, reason: 'not_found: exec wrong not found' });
    expect(await close(frameType.spec, '{')).toMatchObject({ code: 4400 });
    expect(await close(frameType.spec, '{}')).toMatchObject({ code: 4400, reason: expect.stringContaining('cmd') });
    expect(await close(frameType.spec, '{"id":"other","cmd":["true"]}')).toMatchObject({ code: 4400 });
    expect(await close(frameType.spec, '{"cmd":["/no/such/thing"]}')).toMatchObject({ code: 4400 });
    const bad = await open('once-more');
    bad.sendJson(frameType.spec, { cmd: ['cat'], stdin_open: true });
    await opened(bad);
    bad.sendJson(frameType.signal, { signal: 'SIGNOTHING' });
    expect(await bad.ended).toMatchObject({ code: 1008 });
    await expect(open('a/b')).rejects.toThrow();
    await expect(open('once-more', 'offset=x')).rejects.toThrow('400');
    await expect(open('once-more', 'offset=99999999')).rejects.toThrow('400');
    expect(started('wrong')).toBeUndefined();
  });

  it('hears heartbeats while nothing else is said', async () => {
    const before = scene.host.heartbeatMs;
    scene.host.heartbeatMs = 30;
    try {
      const client = await open('silent');
      client.sendJson(frameType.spec, { cmd: ['sleep', '600'] });
      await client.until(({ frames }) => frames.some(({ type }) => type === frameType.heartbeat));
      client.sendJson(frameType.signal, { signal: 'SIGTERM' });
      await client.ended;
    } finally {
      scene.host.heartbeatMs = before;
    }
  });
});

describe('whatever is cut', () => {
  /** Echoes its stdin through a pipe, with what it wrote counted. */
  it('no byte is missing or twice: random chunks, random cuts of client and host', async () => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ minLength: 0, maxLength: 60_000 }), { minLength: 1, maxLength: 8 }),
        fc.array(fc.tuple(fc.nat(200_000), fc.constantFrom('client', 'host')), { maxLength: 4 }),
        async (pieces, cuts) => {
          run += 1;
          const sent = Buffer.concat(pieces);
          const got = await echoed(`random-${run}`, pieces, [...cuts]);
          expect(got.length).toBe(sent.length);
          expect(createHash('sha1').update(got).digest('hex')).toBe(createHash('sha1').update(sent).digest('hex'));
          expect(started(`random-${run}`)).toBe(1);
        },
      ),
      { numRuns: 25, endOnFailure: true },
    );
  }, 120_000);

  async function echoed(execId: string, pieces: Uint8Array[], cuts: [number, 'client' | 'host'][]): Promise<Buffer> {
    const all = Buffer.concat(pieces);
    const got: Buffer[] = [];
    let offset = 0;
    for (;;) {
      const client = await open(execId, `offset=${offset}`);
      client.sendJson(frameType.spec, { cmd: ['cat'], stdin_open: true });
      const { stdin_bytes } = await opened(client);
      // As they were cut the first time, from where the command is on.
      let at = 0;
      for (const piece of pieces) {
        const rest = piece.subarray(Math.min(piece.length, Math.max(0, stdin_bytes - at)));
        at += piece.length;
        if (rest.length > 0) client.send(frameType.stdin, rest);
      }
      expect(at).toBe(all.length);
      client.send(frameType.stdinEnd);
      let taken = 1;
      const take = () => {
        for (const { type, payload } of client.frames.slice(taken)) {
          taken += 1;
          if (type === frameType.heartbeat) continue;
          offset += 8 + payload.length;
          if (type === frameType.stdout) got.push(Buffer.from(payload));
          if (type === frameType.exit) return true;
        }
        return false;
      };
      const cut = cuts.shift();
      if (cut?.[1] === 'host') {
        await client.until(({ outputBytes, frames }) => outputBytes >= cut[0] / 4 || frames.some(isExit));
        scene.host.cutConnections();
      }
      if (cut?.[1] === 'client') {
        await client.until(({ outputBytes, frames }) => outputBytes >= cut[0] / 4 || frames.some(isExit));
        client.cut();
      }
      await client.ended;
      if (take()) return Buffer.concat(got);
    }
  }
  const isExit = ({ type }: { type: number }) => type === frameType.exit;
});

describe('frames of a client', () => {
  it('that are noise end its connection and nothing else', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ minLength: 1, maxLength: 200 }), { minLength: 1 }), async (noise) => {
        const client = await open('noise', 'tail=0');
        client.sendJson(frameType.spec, { cmd: ['sleep', '600'] });
        await opened(client);
        for (const bytes of noise) client.sendBytes(bytes);
        client.leave();
        expect([1000, 1005, 1008, 1009]).toContain((await client.ended).code);
      }),
      { numRuns: 50 },
    );
    expect((await scene.call('GET', '/v1/environments/fuse-connects')).status).toBe(200);
    expect(started('noise')).toBe(1);
  }, 120_000);
});
