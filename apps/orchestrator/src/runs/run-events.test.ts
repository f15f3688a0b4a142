import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines } from '../db/test-database.ts';
import { callerOf, startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';
import {
  bytesIn,
  create,
  eventsOf,
  type RunEventSeen,
  runToEnd,
  statesIn,
  untilEmpty,
  untilEnded,
  untilState,
} from './run-testing.ts';
import { parseServerSentEvents } from './sse-testing.ts';

/** Reads until `enough` events are there, then cuts the connection. */
async function readSome(
  url: string,
  runId: string,
  lastEventId: string | undefined,
  enough: number,
): Promise<RunEventSeen[]> {
  const cut = new AbortController();
  const response = await fetch(`${url}/v1/runs/${runId}/events`, {
    headers: {
      authorization: `Bearer ${TEST_TOKEN}`,
      ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
    },
    signal: cut.signal,
  });
  let text = '';
  let events: RunEventSeen[] = [];
  for await (const piece of response.body ?? []) {
    text += Buffer.from(piece).toString('latin1');
    const whole = text.lastIndexOf('\n\n');
    if (whole === -1) continue;
    events = parseServerSentEvents(text.slice(0, whole + 2)) as RunEventSeen[];
    if (events.length >= enough) break;
  }
  cut.abort();
  return events.slice(0, enough);
}

const ended = (events: readonly RunEventSeen[]): boolean =>
  ['succeeded', 'failed', 'timed_out', 'cancelled'].includes(events.at(-1)?.data.state);

const WHOLE = ['queued', 'starting', 'running', 'saving', 'succeeded'];

describe.each(engines)('events of a run on %s', (engine) => {
  let system: TestOrchestrator;
  beforeAll(async () => {
    system = await startTestOrchestrator(engine);
  }, 60_000);
  afterAll(async () => {
    await untilEmpty(system);
    await system[Symbol.asyncDispose]();
  });

  it('from a position that the log never had break off at once', async () => {
    const created = await create(system.call, { shell: 'echo some' });
    await untilEnded(system.call, created.id);
    const [first] = await readSome(system.orchestrator.url, created.id, undefined, 3);
    const beyond = `${first?.id.split('.')[0]}.999999999.0`;
    const seen = await readSome(system.orchestrator.url, created.id, beyond, Number.POSITIVE_INFINITY).catch(() => []);
    expect(ended(seen)).toBe(false);
  }, 8_000);

  it('come byte for byte and once, wherever and however often the stream is cut, while it runs and after', async () => {
    const cuts = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(cuts, fc.boolean(), async (lengths, live) => {
        // Both streams, chunks of every size, a frame over the size of one event.
        const created = await create(system.call, {
          shell:
            'for i in 1 2 3 4 5 6; do head -c $((i * 7001)) /dev/zero | tr "\\0" $i; echo e$i >&2; sleep 0.02; done; head -c 200000 /dev/zero | tr "\\0" z',
        });
        if (!live) await untilEnded(system.call, created.id);
        const seen: RunEventSeen[] = [];
        for (let turn = 0; !ended(seen); turn += 1) {
          const enough = lengths[turn] ?? Number.POSITIVE_INFINITY;
          seen.push(...(await readSome(system.orchestrator.url, created.id, seen.at(-1)?.id, enough)));
        }
        expect(statesIn(seen)).toEqual(WHOLE);
        expect(new Set(seen.map(({ id }) => id)).size).toBe(seen.length);
        const expected = Buffer.concat([
          ...[1, 2, 3, 4, 5, 6].map((n) => Buffer.alloc(n * 7_001, String(n))),
          Buffer.alloc(200_000, 'z'),
        ]);
        const sum = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
        expect(sum(bytesIn(seen, 'stdout'))).toBe(sum(expected));
        expect(bytesIn(seen, 'stderr').toString()).toBe('e1\ne2\ne3\ne4\ne5\ne6\n');
        for (const { data } of seen)
          if (data.data_base64 !== undefined)
            expect(Buffer.from(data.data_base64, 'base64').length).toBeLessThanOrEqual(65_536);
      }),
      { numRuns: 10, endOnFailure: true },
    );
  }, 120_000);

  it('come as they happen', async () => {
    const created = await create(system.call, { shell: 'echo first; sleep 1; echo second' });
    const startedAt = performance.now();
    const events = await readSome(system.orchestrator.url, created.id, undefined, 4);
    expect(performance.now() - startedAt).toBeLessThan(950);
    expect(statesIn(events)).toEqual(['queued', 'starting', 'running']);
    expect(bytesIn(events, 'stdout').toString()).toBe('first\n');
    await untilEnded(system.call, created.id);
  });

  it('are waited for by whoever asks early', async () => {
    const first = await create(system.call, { shell: 'sleep 60', limits: { cpus: 8 } });
    const waiting = await create(system.call, { shell: 'echo x', limits: { cpus: 8 } });
    const reading = eventsOf(system.call, waiting.id);
    await untilState(system.call, first.id, 'running');
    await system.call('POST', `/v1/runs/${first.id}?action=cancel`);
    expect(statesIn(await reading)).toEqual(WHOLE);
  });

  it('are followed by many at once', async () => {
    const created = await create(system.call, { shell: 'for i in 1 2 3 4 5; do echo $i; sleep 0.05; done' });
    const all = await Promise.all(Array.from({ length: 20 }, () => eventsOf(system.call, created.id)));
    for (const events of all) {
      expect(statesIn(events)).toEqual(WHOLE);
      expect(bytesIn(events, 'stdout').toString()).toBe('1\n2\n3\n4\n5\n');
    }
  });

  it('end at once when everything was read', async () => {
    const run = await runToEnd(system.call, { cmd: ['true'] });
    const events = await eventsOf(system.call, run.id);
    expect(await eventsOf(system.call, run.id, events.at(-1)?.id)).toEqual([]);
  });

  it('begin anew, and say so, behind an id that is none of theirs; there are none of runs that do not exist', async () => {
    const [run, other] = await Promise.all([1, 2].map(() => runToEnd(system.call, { cmd: ['echo', 'hi'] })));
    const all = await eventsOf(system.call, run?.id ?? '');
    const foreign = (await eventsOf(system.call, other?.id ?? '')).at(-1)?.id;
    for (const id of ['nonsense', foreign, '999999999999.0.0']) {
      const [first, ...rest] = await eventsOf(system.call, run?.id ?? '', id);
      expect(first).toMatchObject({ data: { event: 'reset', run_id: run?.id } });
      expect(rest).toEqual(all);
      expect(await eventsOf(system.call, run?.id ?? '', first?.id)).toEqual(all);
    }
    expect((await system.call('GET', '/v1/runs/run-x/events')).status).toBe(404);
  });

  it('survive the host agent being away', async () => {
    const created = await create(system.call, { shell: 'echo one; sleep 0.6; echo two' });
    const reading = eventsOf(system.call, created.id);
    await untilState(system.call, created.id, 'running');
    await system.host.stop();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await system.host.listen();
    const events = await reading;
    expect(statesIn(events)).toEqual(WHOLE);
    expect(bytesIn(events, 'stdout').toString()).toBe('one\ntwo\n');
  });

  if (engine === 'postgres')
    it('go on at another process when the first one is gone', async () => {
      const second = await system.another();
      const created = await create(
        callerOf(() => second.url),
        { shell: 'echo one; sleep 1; echo two' },
      );
      const before = await readSome(second.url, created.id, undefined, 4);
      await second[Symbol.asyncDispose]();
      const after = await eventsOf(system.call, created.id, before.at(-1)?.id);
      const seen = [...before, ...after];
      expect(statesIn(seen)).toEqual(WHOLE);
      expect(bytesIn(seen, 'stdout').toString()).toBe('one\ntwo\n');
    });
});
