import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FuseClient } from './client.ts';
import { CutStreamError, FuseError, isNotFound } from './errors.ts';
import { resumedEvents } from './resumed-events.ts';
import { asText, type RunStreamEvent } from './run-events.ts';
import { eventsOf, TestServer } from './test-server.ts';

const clientOf = (server: TestServer) => new FuseClient({ baseUrl: server.url, random: () => 0 });

async function collect<T>(events: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const event of events) all.push(event);
  return all;
}

const bytesOn = (events: RunStreamEvent[], stream: 'stdout' | 'stderr') =>
  Buffer.concat(events.flatMap((event) => (event.event === stream && 'data' in event ? [event.data] : [])));

describe('run events', () => {
  it('come once each and in order, wherever their connections are cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 12 }),
        fc.array(fc.nat({ max: 600 }), { maxLength: 6 }),
        async (pieces, cuts) => {
          await using server = await TestServer.start({ events: eventsOf(pieces), cutEventsAfterBytes: cuts });
          const client = clientOf(server);
          const run = await client.runs.create({ shell: 'true' });
          const events = await collect(client.runs.events(run.id));
          expect(events.map((event) => event.id)).toEqual(server.script.events.map((_, index) => `event-${index}`));
          expect(bytesOn(events, 'stdout')).toEqual(Buffer.concat(pieces.filter((_, index) => index % 2 === 0)));
          expect(bytesOn(events, 'stderr')).toEqual(Buffer.concat(pieces.filter((_, index) => index % 2 === 1)));
        },
      ),
      { numRuns: 60 },
    );
  }, 60_000);

  it('go on after the id that is given', async () => {
    await using server = await TestServer.start({ events: eventsOf([Buffer.from('a'), Buffer.from('b')]) });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    const events = await collect(client.runs.events(run.id, { lastEventId: 'event-1' }));
    expect(events.map((event) => event.id)).toEqual(['event-2', 'event-3']);
  });

  it('fail as a cut stream when no connection gets further for too long, naming where it stood', async () => {
    await using server = await TestServer.start({ events: eventsOf([Buffer.from('a')]) });
    server.script.cutEventsAfterBytes = [200, ...Array<number>(500).fill(3)];
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    const seen: RunStreamEvent[] = [];
    const failure = await (async () => {
      for await (const event of client.runs.events(run.id, { patienceMs: 500 })) seen.push(event);
    })().catch((error: unknown) => error);
    expect(seen.length).toBeGreaterThan(0);
    expect(failure).toBeInstanceOf(CutStreamError);
    expect(failure).toMatchObject({ subjectId: run.id, lastEventId: seen.at(-1)?.id });
  }, 30_000);

  it('are refused at once for a run that does not exist', async () => {
    await using server = await TestServer.start();
    const failure = await collect(clientOf(server).runs.events('run-none')).catch((error: unknown) => error);
    expect(isNotFound(failure)).toBe(true);
    expect(server.seen.length).toBe(1);
  });

  it('end with the reason of the signal that aborts them', async () => {
    await using server = await TestServer.start({ events: eventsOf([]).slice(0, 1), endless: true });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    const stop = new AbortController();
    const reason = new Error('enough');
    const failure = await (async () => {
      for await (const _ of client.runs.events(run.id, { signal: stop.signal })) stop.abort(reason);
    })().catch((error: unknown) => error);
    expect(failure).toBe(reason);
  });

  it('leave no connection behind when their reader stops early', async () => {
    await using server = await TestServer.start({ events: eventsOf([]).slice(0, 1), endless: true });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    for await (const _ of client.runs.events(run.id)) break;
  });

  it('that are not events of a run fail at once', async () => {
    await using server = await TestServer.start({ events: [{ event: 'state' } as never] });
    const client = clientOf(server);
    const run = await client.runs.create({ shell: 'true' });
    const failure = await collect(client.runs.events(run.id)).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(FuseError);
    expect(String(failure)).toContain('not an event of a run');
  });
});

describe('a connection on which nothing comes', () => {
  it('is given up and made again', async () => {
    let connections = 0;
    const silent = () => new Response(new ReadableStream<Uint8Array>());
    const speaking = () => new Response('id: 1\ndata: {"last":true}\n\n');
    const events = resumedEvents(
      {
        id: 'x',
        connect: async () => (++connections < 3 ? silent() : speaking()),
        decode: (data) => JSON.parse(data) as { last: boolean },
        isLast: (event) => event.last,
      },
      { random: () => 0, stallMs: 20 },
    );
    expect(await collect(events)).toEqual([{ last: true, id: '1' }]);
    expect(connections).toBe(3);
  });
});

describe('asText', () => {
  it('gives the same text however its bytes are cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: 'grapheme', maxLength: 60 }),
        fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1 }),
        async (text, sizes) => {
          const bytes = new TextEncoder().encode(text);
          async function* events(): AsyncGenerator<RunStreamEvent> {
            let at = 0;
            for (let turn = 0; at < bytes.length; turn++) {
              const size = sizes[turn % sizes.length] ?? 1;
              const data = bytes.subarray(at, at + size);
              at += size;
              yield { event: 'stdout', id: `${at}`, runId: 'r', data };
              yield { event: 'stderr', id: `${at}e`, runId: 'r', data };
            }
          }
          let [out, err] = ['', ''];
          for await (const event of asText(events())) {
            if (event.event === 'stdout') out += event.text;
            if (event.event === 'stderr') err += event.text;
          }
          expect([out, err]).toEqual([text, text]);
        },
      ),
    );
  });

  it('marks a character that the end of the output cut, before the state that follows', async () => {
    async function* events(): AsyncGenerator<RunStreamEvent> {
      yield { event: 'stdout', id: '1', runId: 'r', data: new Uint8Array([0x61, 0xe2, 0x82]) };
      yield { event: 'state', id: '2', runId: 'r', state: 'succeeded', at: '' };
    }
    const all = await collect(asText(events()));
    expect(all.map((event) => ('text' in event ? event.text : event.event))).toEqual(['a', '\ufffd', 'state']);
  });
});
