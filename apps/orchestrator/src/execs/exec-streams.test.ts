/** Streams whose connections break: of the client, of the host, and of the VM itself. */
import { createHash, randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { encodeFrame, frameType } from '@fuse/contract';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { until } from '../runs/run-testing.ts';
import { startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';
import { dataOf, framesOf, linesOf, readStream } from './exec-testing.ts';

let test: TestOrchestrator;
let call: TestOrchestrator['call'];
let base: string;
let number = 0;
beforeAll(async () => {
  test = await startTestOrchestrator('postgres');
  call = test.call;
  const made = await call('POST', '/v1/environments', { task_id: 'streams' });
  base = `/v1/environments/${made.body.id}`;
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());
afterEach(() => {
  test.host.before = () => {};
  test.host.cutLogAfter = () => Number.POSITIVE_INFINITY;
});

const newExec = () => `exec-${++number}`;
const start = (body: object, query = '') => call('POST', `${base}/execs${query}`, body);

/** Every byte of a script's two streams, written in small pieces. */
async function writer(stdout: Buffer, stderr: Buffer): Promise<string> {
  const id = newExec();
  const pieces = (bytes: Buffer) => bytes.toString('base64');
  const script = [
    `const out = Buffer.from('${pieces(stdout)}', 'base64'), err = Buffer.from('${pieces(stderr)}', 'base64');`,
    'const step = 997; let at = 0;',
    'const next = () => { if (at >= Math.max(out.length, err.length)) return;',
    'process.stdout.write(out.subarray(at, at + step)); process.stderr.write(err.subarray(at, at + step)); at += step; setTimeout(next, 1); };',
    'next();',
  ].join('\n');
  const answer = await start({ id, cmd: [process.execPath, '-e', script] });
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  return id;
}

describe('a log that is followed', () => {
  it('is whole, wherever clients and hosts are cut, in lines and in frames', { timeout: 120_000 }, async () => {
    const stdout = Buffer.from('漢字 and 🎉 and é, '.repeat(900));
    const stderr = randomBytes(20_000);
    const forms = fc.constantFrom('ndjson', 'frames');
    await fc.assert(
      fc.asyncProperty(
        forms,
        fc.array(fc.integer({ min: 1, max: 9_000 }), { maxLength: 8 }),
        fc.array(fc.integer({ min: 0, max: 9_000 }), { maxLength: 8 }),
        async (form, clientCuts, hostCuts) => {
          const id = await writer(stdout, stderr);
          const ofHost = [...hostCuts];
          test.host.cutLogAfter = () => ofHost.shift() ?? Number.POSITIVE_INFINITY;
          const seen = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
          let offset = 0;
          for (const cut of [...clientCuts, Number.POSITIVE_INFINITY]) {
            const path = `${base}/execs/${id}/log?follow=1&stream=${form}&encoding=base64&offset=${offset}`;
            const { bytes, isWhole, status } = await readStream(test, path, {
              leaveWhen: ({ length }) => length > cut,
            });
            expect(status, status === 200 ? '' : bytes.toString()).toBe(200);
            const events = form === 'ndjson' ? fromLines(bytes) : fromFrames(bytes, offset);
            for (const { stream, data, after } of events) {
              if (stream !== undefined) seen[stream].push(data);
              offset = after;
            }
            // Behind the exit there is nothing to come back for.
            if (isWhole || events.some(({ isExit }) => isExit)) break;
          }
          expect(Buffer.concat(seen.stdout).equals(stdout)).toBe(true);
          expect(Buffer.concat(seen.stderr).equals(stderr)).toBe(true);
        },
      ),
      { numRuns: 15, endOnFailure: true },
    );
  });

  it('as text of UTF-8 is whole too, no character split', { timeout: 60_000 }, async () => {
    const stdout = Buffer.from('漢字かな'.repeat(2_000));
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 6_000 }), { maxLength: 6 }), async (cuts) => {
        const id = await writer(stdout, Buffer.alloc(0));
        let text = '';
        let offset = 0;
        for (const cut of [...cuts, Number.POSITIVE_INFINITY]) {
          const path = `${base}/execs/${id}/log?follow=1&offset=${offset}`;
          const lines = linesOf((await readStream(test, path, { leaveWhen: ({ length }) => length > cut })).bytes);
          for (const line of lines) {
            if ('stream' in line) text += line.data;
            if ('offset' in line) offset = line.offset;
          }
        }
        expect(text === stdout.toString()).toBe(true);
      }),
      { numRuns: 8 },
    );
  });

  it('goes on over a restart of its host agent, as the answer of the very request', async () => {
    const id = newExec();
    const answering = readStream(test, `${base}/execs?stream=ndjson`, {
      method: 'POST',
      body: JSON.stringify({ id, shell: 'for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done' }),
    });
    await until(
      () => [...test.host.vms.values()].some(({ execs }) => (execs.get(id)?.log.end ?? 0) > 0),
      (begun) => begun,
    );
    await test.host.stop();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await test.host.listen();
    const { bytes, isWhole } = await answering;
    expect(isWhole).toBe(true);
    expect(dataOf(linesOf(bytes), 'stdout').toString()).toBe('1\n2\n3\n4\n5\n6\n7\n8\n');
    expect(test.host.started.get(id)).toBe(1);
  });

  it('goes on in the archive when its environment is destroyed, and ends as lost', async () => {
    const made = await call('POST', '/v1/environments', { task_id: 'destroyed-under-it' });
    const path = `/v1/environments/${made.body.id}`;
    let destroying: Promise<unknown> | undefined;
    const { bytes, isWhole } = await readStream(test, `${path}/execs?stream=ndjson`, {
      method: 'POST',
      body: JSON.stringify({ shell: 'echo before; sleep 60' }),
      leaveWhen: (soFar) => {
        if (soFar.includes('before')) destroying ??= call('DELETE', path);
        return false;
      },
    });
    expect(await destroying).toMatchObject({ status: 204 });
    expect(isWhole).toBe(true);
    expect(linesOf(bytes)).toMatchObject([{ data: 'before\n' }, { lost: expect.any(String) }]);
  });

  it('costs no memory when nobody reads it, and holds up no destruction', { timeout: 60_000 }, async () => {
    const made = await call('POST', '/v1/environments', { task_id: 'stalled' });
    const path = `/v1/environments/${made.body.id}`;
    const id = newExec();
    const heapBefore = process.memoryUsage();
    const stalled = request(`${test.orchestrator.url}${path}/execs?stream=frames`, {
      method: 'POST',
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    const paused = new Promise<void>((resolve) => {
      stalled.once('response', (response) => {
        response.pause();
        response.on('error', () => {});
        resolve();
      });
    });
    stalled.on('error', () => {});
    stalled.end(JSON.stringify({ id, shell: 'yes | head -c 200000000', max_log_bytes: 1_048_576 }));
    await paused;
    const exec = () =>
      [...test.host.vms.values()].map(({ execs }) => execs.get(id)).find((found) => found !== undefined);
    // Held back: what it writes goes no further than the buffers on the way.
    let last = -1;
    await until(
      async () => {
        const { end = 0 } = exec()?.log ?? {};
        const standsStill = end === last;
        last = end;
        await new Promise((resolve) => setTimeout(resolve, 200));
        return standsStill && end > 0;
      },
      (standsStill) => standsStill,
      20_000,
    );
    expect(last).toBeLessThan(50_000_000);
    expect(process.memoryUsage().rss - heapBefore.rss).toBeLessThan(200_000_000);
    expect((await call('DELETE', path)).status).toBe(204);
    stalled.destroy();
  });
});

describe('stdin', () => {
  it('of 10 MiB arrives whole, its end too', { timeout: 60_000 }, async () => {
    const id = newExec();
    await start({ id, cmd: ['sha256sum'], stdin_open: true });
    const bytes = randomBytes(10 * 1_048_576);
    const answer = await fetch(`${test.orchestrator.url}${base}/execs/${id}/stdin?offset=0&end=1`, {
      method: 'POST',
      body: bytes,
      headers: { authorization: `Bearer ${TEST_TOKEN}` },
    });
    expect(await answer.json()).toEqual({ stdin_bytes: bytes.length, closed: true });
    await call('GET', `${base}/execs/${id}?wait_ms=20000`);
    const sum = createHash('sha256').update(bytes).digest('hex');
    expect((await call('GET', `${base}/execs/${id}/result`)).body.stdout).toBe(`${sum}  -\n`);
  });

  it('that is cut midway goes on where the command has it', async () => {
    const id = newExec();
    await start({ id, cmd: ['cat'], stdin_open: true });
    const bytes = randomBytes(300_000);
    let at = 0;
    for (const cut of [1, 70_000, 150_000, bytes.length]) {
      const sent = await new Promise<void>((resolve) => {
        const sending = request(`${test.orchestrator.url}${base}/execs/${id}/stdin?offset=${at}`, {
          method: 'POST',
          headers: { authorization: `Bearer ${TEST_TOKEN}`, 'transfer-encoding': 'chunked' },
        });
        sending.on('error', () => resolve());
        sending.once('response', (response) => response.resume().once('end', resolve));
        sending.write(bytes.subarray(at, cut), () => {
          if (cut === bytes.length) sending.end();
          else setTimeout(() => sending.destroy(), 30);
        });
      });
      expect(sent).toBeUndefined();
      const conflict = await call('POST', `${base}/execs/${id}/stdin?offset=9999999`, 'x');
      at = Number(conflict.body.error.details.stdin_bytes);
      expect(at).toBeGreaterThan(0);
    }
    expect(at).toBe(bytes.length);
    await call('POST', `${base}/execs/${id}/stdin?end=1`, '');
    await call('GET', `${base}/execs/${id}?wait_ms=20000`);
    const { body } = await call('GET', `${base}/execs/${id}/result?encoding=base64`);
    expect(Buffer.from(body.stdout, 'base64').equals(bytes)).toBe(true);
  });
});

describe('?action=exec', () => {
  it('is killed when its client leaves, a stream is not', async () => {
    const gone = new AbortController();
    const left = call('POST', `${base}?action=exec`, { id: newExec(), shell: 'sleep 30' }, { signal: gone.signal });
    left.catch(() => {});
    const id = `exec-${number}`;
    await until(
      () => test.host.started.get(id),
      (times) => times === 1,
    );
    gone.abort();
    const { body } = await call('GET', `${base}/execs/${id}?wait_ms=20000`);
    expect(body).toMatchObject({ state: 'exited', exit: { signal: 'SIGKILL' } });
  });

  it('is a typed error when the VM is lost while its end is waited for', async () => {
    const made = await call('POST', '/v1/environments', { task_id: 'lost-call' });
    const path = `/v1/environments/${made.body.id}`;
    const id = newExec();
    const answer = call('POST', `${path}?action=exec`, { id, shell: 'sleep 30' });
    await until(
      () => test.host.started.get(id),
      (times) => times === 1,
    );
    const vm = [...test.host.vms.values()].find(({ execs }) => execs.has(id));
    test.host.killVm(vm?.vm.id ?? '');
    expect(await answer).toMatchObject({ status: 502, body: { error: { code: 'vm_lost' } } });
    expect((await call('GET', `${path}/execs/${id}`)).body).toMatchObject({ state: 'lost' });
    expect(await call('GET', `${path}/execs/${id}/result`)).toMatchObject({
      status: 502,
      body: { error: { code: 'vm_lost' } },
    });
  });
});

interface Piece {
  stream: 'stdout' | 'stderr' | undefined;
  data: Buffer;
  after: number;
  isExit: boolean;
}

const fromLines = (bytes: Buffer): Piece[] =>
  linesOf(bytes).flatMap((line) =>
    'offset' in line
      ? [
          'stream' in line
            ? { stream: line.stream, data: Buffer.from(line.data, 'base64'), after: line.offset, isExit: false }
            : { stream: undefined, data: Buffer.alloc(0), after: line.offset, isExit: 'exit' in line },
        ]
      : [],
  );

/** Whole frames only: a cut answer may end in the middle of one. */
function fromFrames(bytes: Buffer, offset: number): Piece[] {
  let after = offset;
  return framesOf(bytes).map(({ type, payload }) => {
    if (type !== frameType.heartbeat) after += encodeFrame(type, payload).length;
    const stream = type === frameType.stdout ? 'stdout' : type === frameType.stderr ? 'stderr' : undefined;
    return { stream, data: Buffer.from(payload), after, isExit: type === frameType.exit };
  });
}
