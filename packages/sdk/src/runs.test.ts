import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FuseClient } from './client.ts';
import { IntegrityError } from './errors.ts';
import { eventsOf, TestServer } from './test-server.ts';

const clientOf = (server: TestServer) => new FuseClient({ baseUrl: server.url, token: 'secret', random: () => 0 });
const text = (value: string) => new TextEncoder().encode(value);

describe('run()', () => {
  it('creates once, streams everything in order, and gives the result, whatever breaks on the way', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.nat({ max: 2 }),
        fc.array(fc.nat({ max: 400 }), { maxLength: 4 }),
        async (lostAnswers, cuts) => {
          await using server = await TestServer.start({
            events: eventsOf([text('one '), text('two '), text('three')]),
            loseAnswers: { method: 'POST', times: lostAnswers },
            cutEventsAfterBytes: cuts,
          });
          const stdout: Uint8Array[] = [];
          const stderr: Uint8Array[] = [];
          const result = await clientOf(server).runs.run(
            { shell: 'true' },
            {
              onStdout: (bytes) => void stdout.push(bytes),
              onStderr: (bytes) => void stderr.push(bytes),
            },
          );
          expect([stdout, stderr].map((chunks) => Buffer.concat(chunks).toString())).toEqual(['one three', 'two ']);
          expect(result).toMatchObject({ ok: true, exitCode: 0, state: 'succeeded', timedOut: false });
          expect(server.runs.size).toBe(1);
        },
      ),
      { numRuns: 20 },
    );
  }, 30_000);

  it('cancels the run on the server when aborted, then rejects with the reason', async () => {
    await using server = await TestServer.start({ events: eventsOf([text('x')]).slice(0, 2), endless: true });
    const stop = new AbortController();
    const reason = new Error('enough');
    const run = clientOf(server).runs.run(
      { shell: 'true' },
      { signal: stop.signal, onStdout: () => stop.abort(reason) },
    );
    await expect(run).rejects.toBe(reason);
    expect([...server.cancelled]).toEqual(['run-1']);
  });

  it('cancels a run whose create was under way when aborted', async () => {
    await using server = await TestServer.start({ createDelayMs: 200 });
    const stop = new AbortController();
    const reason = new Error('enough');
    setTimeout(() => stop.abort(reason), 50);
    const ids: string[] = [];
    const run = clientOf(server).runs.run(
      { shell: 'true' },
      { signal: stop.signal, onCreated: ({ id }) => ids.push(id) },
    );
    await expect(run).rejects.toBe(reason);
    expect([[...server.cancelled], ids]).toEqual([['run-1'], ['run-1']]);
  });

  it('starts nothing when it is aborted already', async () => {
    await using server = await TestServer.start();
    const reason = new Error('enough');
    const run = clientOf(server).runs.run({ shell: 'true' }, { signal: AbortSignal.abort(reason) });
    await expect(run).rejects.toBe(reason);
    expect(server.seen).toEqual([]);
  });
});

describe('outputs', () => {
  const outputs = [{ path: 'a b/c.txt', bytes: text('hello') }];

  it('are downloaded by path without showing the token to whoever serves them', async () => {
    await using server = await TestServer.start({ outputs });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    expect(await client.runs.outputs.download(run.id, 'a b/c.txt')).toEqual(text('hello'));
    const download = server.seen.find((each) => each.path.startsWith('/v1/downloads/'));
    expect(download?.headers.authorization).toBeUndefined();
  });

  it('are asked for again when their URL has expired', async () => {
    await using server = await TestServer.start({ outputs });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    const [output] = run.outputs;
    if (output === undefined) throw new Error('no output');
    const stale = { ...output, url: output.url.replace('fresh', 'stale') };
    expect(await client.runs.outputs.download(run.id, stale)).toEqual(text('hello'));
  });

  it('whose bytes are not those that were saved are refused', async () => {
    await using server = await TestServer.start({ outputs });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    server.script.outputs = [{ path: 'a b/c.txt', bytes: text('hellO') }];
    await expect(client.runs.outputs.download(run.id, 'a b/c.txt')).rejects.toBeInstanceOf(IntegrityError);
  });

  it('that do not exist are named with those that do', async () => {
    await using server = await TestServer.start({ outputs });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    await expect(client.runs.outputs.download(run.id, 'z')).rejects.toThrow('it has "a b/c.txt"');
  });
});

describe('files', () => {
  it('are streamed up, and sent again when an answer is lost', async () => {
    await using server = await TestServer.start({ loseAnswers: { method: 'POST', times: 1 } });
    const pieces = [text('ab'), text('cd')];
    const content = () =>
      new ReadableStream<Uint8Array>({
        start(controller) {
          for (const piece of pieces) controller.enqueue(piece);
          controller.close();
        },
      });
    const file = await clientOf(server).files.upload(content);
    expect(file).toMatchObject({ id: 'file-1', size_bytes: 4 });
    expect(server.seen.map((each) => each.body)).toEqual(['abcd', 'abcd']);
  });
});
