import { Exec, ExecResult, frameType, ListExecs, ListProcesses } from '@fuse/contract';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { until } from '../runs/run-testing.ts';
import { type Answer, startTestOrchestrator, TEST_TOKEN, type TestOrchestrator } from '../test-orchestrator.ts';
import { dataOf, framesOf, linesOf, readStream } from './exec-testing.ts';

let test: TestOrchestrator;
let call: TestOrchestrator['call'];
let base: string;
beforeAll(async () => {
  test = await startTestOrchestrator('postgres');
  call = test.call;
  const made = await call('POST', '/v1/environments', { task_id: 'execs' });
  base = `/v1/environments/${made.body.id}`;
}, 60_000);
afterAll(() => test[Symbol.asyncDispose]());
afterEach(() => {
  test.host.before = () => {};
  test.host.cutLogAfter = () => Number.POSITIVE_INFINITY;
});

const started = async (body: object): Promise<Exec> => {
  const answer = await call('POST', `${base}/execs`, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  return Exec.parse(answer.body);
};
const ended = async (id: string): Promise<Exec> =>
  Exec.parse((await call('GET', `${base}/execs/${id}?wait_ms=20000`)).body);
const started_of = (id: string) => test.host.started.get(id);

describe('an exec', () => {
  it('is started, waited for, and its result and log read by its id', async () => {
    const exec = await started({ id: 'one', shell: 'echo out; echo err >&2; exit 3' });
    expect(exec).toMatchObject({ id: 'one', state: 'running', command: ['sh', '-lc', expect.any(String)] });
    const end = await ended('one');
    expect(end).toMatchObject({ state: 'exited', exit: { exit_code: 3, stdout_bytes: 4, stderr_bytes: 4 } });
    expect(end.ended_at).toBeDefined();
    const result = ExecResult.parse((await call('GET', `${base}/execs/one/result`)).body);
    expect(result).toMatchObject({ exec_id: 'one', exit_code: 3, stdout: 'out\n', stderr: 'err\n', timed_out: false });
    const base64 = await call('GET', `${base}/execs/one/result?encoding=base64`);
    expect(base64.body).toMatchObject({ stdout: Buffer.from('out\n').toString('base64'), encoding: 'base64' });
    const log = await readStream(test, `${base}/execs/one/log`);
    expect(log).toMatchObject({
      isWhole: true,
      headers: { 'fuse-exec-id': 'one', 'fuse-log-offset': '0', 'content-type': 'application/x-ndjson' },
    });
    expect(linesOf(log.bytes).at(-1)).toMatchObject({ exit: { exit_code: 3 }, offset: end.log_end });
  });

  it('is never started twice by one id, and says 200 when it was there', async () => {
    await started({ id: 'twice', shell: 'sleep 0.1; echo once' });
    const again = await call('POST', `${base}/execs`, { id: 'twice', shell: 'echo other' });
    expect(again).toMatchObject({ status: 200, body: { id: 'twice' } });
    const waited = await call('POST', `${base}?action=exec`, { id: 'twice', shell: 'echo other' });
    expect(waited).toMatchObject({ status: 200, body: { exec_id: 'twice', stdout: 'once\n' } });
    expect(started_of('twice')).toBe(1);
  });

  it('has an id of its own when none is given, is listed newest first, terminals apart', async () => {
    const first = await started({ cmd: ['true'] });
    const second = await started({ cmd: ['cat'], tty: { rows: 10, cols: 20 } });
    expect(first.id).not.toBe(second.id);
    expect(second.tty).toEqual({ rows: 10, cols: 20, viewers: 0 });
    const { execs } = ListExecs.parse((await call('GET', `${base}/execs`)).body);
    expect(execs.map(({ id }) => id).slice(0, 2)).toEqual([second.id, first.id]);
    const terminals = ListExecs.parse((await call('GET', `${base}/execs?tty=true`)).body);
    expect(terminals.execs.map(({ id }) => id)).toEqual([second.id]);
    expect((await call('DELETE', `${base}/execs/${second.id}`)).status).toBe(204);
    await ended(second.id);
  });

  it('answers 202 in the background, has no timeout of its own then, and is killed with a signal', async () => {
    const answer = await call('POST', `${base}?action=exec`, {
      id: 'server',
      shell: 'echo up; sleep 60',
      background: true,
    });
    expect(answer).toMatchObject({ status: 202, body: { id: 'server', state: 'running' } });
    expect(await call('GET', `${base}/execs/server/result`)).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict' } },
    });
    const waited = await call('GET', `${base}/execs/server?wait_ms=50`);
    expect(waited.body).toMatchObject({ state: 'running' });
    const { processes } = ListProcesses.parse((await call('GET', `${base}/processes`)).body);
    expect(processes).toMatchObject([{ exec_id: 'server' }]);
    const pid = processes[0]?.pid;
    expect((await call('POST', `${base}/processes/${pid}/signal`, { signal: 'SIGCONT' })).status).toBe(204);
    expect((await call('POST', `${base}/execs/server/signal`)).status).toBe(204);
    expect(await ended('server')).toMatchObject({ exit: { signal: 'SIGTERM' } });
    expect((await call('POST', `${base}/execs/server/signal`, { signal: 'SIGKILL', tree: true })).status).toBe(204);
    expect((await call('POST', `${base}/processes/${pid}/signal`, {})).status).toBe(404);
  });

  it('takes stdin with the request, and piece by piece at its offset', async () => {
    const inline = await call('POST', `${base}?action=exec`, { cmd: ['cat'], stdin: 'héllo' });
    expect(inline.body).toMatchObject({ stdout: 'héllo' });
    const encoded = await call('POST', `${base}?action=exec`, {
      cmd: ['cat'],
      stdin: 'AAEC',
      stdin_encoding: 'base64',
      encoding: 'base64',
    });
    expect(encoded.body).toMatchObject({ stdout: 'AAEC' });

    await started({ id: 'cat', cmd: ['cat'], stdin: 'abc', stdin_open: true });
    const stdin = (query: string, body: string) => call('POST', `${base}/execs/cat/stdin${query}`, body);
    expect(await stdin('?offset=3', 'def')).toMatchObject({ status: 200, body: { stdin_bytes: 6, closed: false } });
    // What it has is passed over.
    expect((await stdin('?offset=3', 'defghi')).body).toEqual({ stdin_bytes: 9, closed: false });
    expect(await stdin('?offset=20', 'x')).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict', details: { stdin_bytes: '9' } } },
    });
    expect((await stdin('', '!')).body).toEqual({ stdin_bytes: 10, closed: false });
    expect((await stdin('?end=1', '')).body).toEqual({ stdin_bytes: 10, closed: true });
    await ended('cat');
    expect((await call('GET', `${base}/execs/cat/result`)).body).toMatchObject({ stdout: 'abcdefghi!' });
    expect(await stdin('', 'late')).toMatchObject({
      status: 409,
      body: { error: { details: { reason: 'stdin_closed' } } },
    });
  });

  it('takes stdin as it comes, long before all of it is there', async () => {
    await started({ id: 'live', cmd: ['cat'], stdin_open: true });
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
    const body = new ReadableStream<Uint8Array>({
      start: (c) => {
        controller = c;
      },
    });
    const sending = fetch(`${test.orchestrator.url}${base}/execs/live/stdin?end=1`, {
      method: 'POST',
      body,
      duplex: 'half',
      headers: { authorization: `Bearer ${TEST_TOKEN}`, 'content-type': 'application/json' },
    } as RequestInit);
    for (const word of ['one ', '{ not json', ' three']) {
      controller?.enqueue(Buffer.from(word));
      await until(
        async () => (await readStream(test, `${base}/execs/live/log?stream=text`)).bytes.toString(),
        (text) => text.endsWith(word),
      );
    }
    controller?.close();
    expect((await sending).status).toBe(200);
    await ended('live');
  });

  it('that cannot be started is a mistake in cmd, and there is none', async () => {
    for (const path of [`${base}/execs`, `${base}/execs?stream=ndjson`, `${base}?action=exec`])
      for (const background of [false, true])
        expect(await call('POST', path, { id: 'phantom', cmd: ['/no/such/program'], background })).toMatchObject({
          status: 400,
          body: { error: { code: 'invalid_argument', details: { field: 'cmd', reason: 'exec_failed' } } },
        });
    expect((await call('GET', `${base}/execs/phantom`)).status).toBe(404);
    expect((await call('GET', `${base}/processes`)).body).toMatchObject({ processes: [] });
  });
});

describe('a stream', () => {
  const SCRIPT = 'echo out; echo err >&2; sleep 0.05; printf "\\346\\274"; sleep 0.1; printf "\\242\\n"; exit 4';

  it('of lines is the log as it comes, characters whole', async () => {
    const answer = await readStream(test, `${base}/execs?stream=ndjson`, {
      method: 'POST',
      body: JSON.stringify({ id: 'lines', shell: SCRIPT }),
    });
    expect(answer).toMatchObject({ status: 200, isWhole: true, headers: { 'fuse-exec-id': 'lines' } });
    const lines = linesOf(answer.bytes);
    expect(dataOf(lines, 'stdout').toString()).toBe('out\n漢\n');
    expect(dataOf(lines, 'stderr').toString()).toBe('err\n');
    expect(answer.bytes.toString()).not.toContain('\uFFFD');
    expect(lines.at(-1)).toMatchObject({ exit: { exit_code: 4 } });
  });

  it('of text is the bytes, the exit code its trailer', async () => {
    const answer = await readStream(test, `${base}/execs?stream=text`, {
      method: 'POST',
      body: JSON.stringify({ shell: 'printf "\\377\\000a"; exit 9' }),
    });
    expect(answer).toMatchObject({ isWhole: true, trailers: { 'fuse-exit-code': '9' } });
    expect(answer.bytes).toEqual(Buffer.from([255, 0, 97]));
  });

  it('of frames is the frames', async () => {
    const answer = await readStream(test, `${base}/execs?stream=frames`, {
      method: 'POST',
      body: JSON.stringify({ shell: SCRIPT }),
    });
    const frames = framesOf(answer.bytes);
    expect(frames.at(-1)?.type).toBe(frameType.exit);
    const out = frames.filter(({ type }) => type === frameType.stdout).map(({ payload }) => Buffer.from(payload));
    expect(Buffer.concat(out).toString()).toBe('out\n漢\n');
  });

  it('that its client leaves goes on without it, and can be gone on with', async () => {
    const first = await readStream(test, `${base}/execs?stream=frames`, {
      method: 'POST',
      body: JSON.stringify({ id: 'left', shell: 'echo one; sleep 0.4; echo two' }),
      leaveWhen: (bytes) => bytes.includes('one\n'),
    });
    expect(first.isWhole).toBe(false);
    const rest = await readStream(test, `${base}/execs/left/log?follow=1&offset=${first.bytes.length}`);
    expect(rest.headers['fuse-log-offset']).toBe(String(first.bytes.length));
    expect(dataOf(linesOf(rest.bytes), 'stdout').toString()).toBe('two\n');
    expect(started_of('left')).toBe(1);
  });

  it('says in every form when the VM is lost, and never that it ended', async () => {
    for (const form of ['ndjson', 'text', 'frames']) {
      const made = await call('POST', '/v1/environments', { task_id: `dies-${form}` });
      const answer = await readStream(test, `/v1/environments/${made.body.id}/execs?stream=${form}`, {
        method: 'POST',
        body: JSON.stringify({ shell: 'echo before; sleep 60' }),
        leaveWhen: (bytes) => {
          const vm = [...test.host.vms.values()].find(({ execs }) =>
            [...execs.values()].some(({ status }) => status.state === 'running'),
          );
          if (bytes.includes('before') && vm !== undefined) test.host.killVm(vm.vm.id);
          return false;
        },
      });
      expect(answer.bytes.toString()).toContain('before');
      expect(answer.isWhole).toBe(form === 'ndjson');
      expect(answer.trailers).toEqual({});
      if (form === 'ndjson') expect(linesOf(answer.bytes).at(-1)).toMatchObject({ lost: expect.any(String) });
      await call('DELETE', `/v1/environments/${made.body.id}`);
    }
  });

  it('tells a gap where its log keeps only its ends', async () => {
    const exec = await started({ id: 'long', shell: 'seq 1 60000; sleep 0.1', max_log_bytes: 65_536 });
    const end = await ended(exec.id);
    expect(end.log_gap).toBeDefined();
    const lines = linesOf((await readStream(test, `${base}/execs/long/log`)).bytes);
    const gap = lines.find((line) => 'gap' in line);
    expect(gap).toMatchObject({ gap: end.log_gap });
    const text = dataOf(lines, 'stdout').toString();
    expect(text.slice(0, 6)).toBe('1\n2\n3\n');
    expect(text.slice(-12)).toBe('59999\n60000\n');
    const tail = await readStream(test, `${base}/execs/long/log?tail=1000&stream=text`);
    expect(Number(tail.headers['fuse-log-offset'])).toBeGreaterThan(end.log_end - 1_001);
    const asText = await readStream(test, `${base}/execs/long/log?stream=text`);
    expect(Number(asText.trailers['fuse-log-gap-bytes'])).toBe((end.log_gap?.to ?? 0) - (end.log_gap?.from ?? 0));
  });

  it('holds a command back that is followed, rather than losing any of it', async () => {
    const answer = await readStream(test, `${base}/execs?stream=text`, {
      method: 'POST',
      body: JSON.stringify({ shell: 'seq 1 60000', max_log_bytes: 65_536 }),
    });
    expect(answer.bytes.toString()).toBe(`${Array.from({ length: 60_000 }, (_, at) => at + 1).join('\n')}\n`);
    expect(answer.trailers).toEqual({ 'fuse-exit-code': '0' });
  });
});

describe('what is asked wrongly', () => {
  const refusals: [string, string, unknown, number, string, string?][] = [
    ['POST', '/execs', {}, 400, 'invalid_argument', 'cmd'],
    ['POST', '/execs', undefined, 400, 'invalid_argument'],
    ['POST', '/execs', 'not json', 400, 'invalid_argument'],
    ['POST', '/execs', { cmd: ['a'], shell: 'b' }, 400, 'invalid_argument', 'cmd'],
    ['POST', '/execs', { cmd: [''] }, 400, 'invalid_argument', 'cmd.0'],
    ['POST', '/execs', { cmd: ['a\0'] }, 400, 'invalid_argument', 'cmd.0'],
    ['POST', '/execs', { cmd: ['a'], id: '../x' }, 400, 'invalid_argument', 'id'],
    ['POST', '/execs', { cmd: ['a'], timeout_ms: -1 }, 400, 'invalid_argument', 'timeout_ms'],
    ['POST', '/execs', { cmd: ['a'], timeout_ms: 1e13 }, 400, 'invalid_argument', 'timeout_ms'],
    ['POST', '/execs', { cmd: ['a'], max_log_bytes: 1 }, 400, 'invalid_argument', 'max_log_bytes'],
    ['POST', '/execs', { cmd: ['a'], tty: { rows: 0, cols: 1 } }, 400, 'invalid_argument', 'tty.rows'],
    ['POST', '/execs', { cmd: ['a'], user: 'no user' }, 400, 'invalid_argument', 'user'],
    ['POST', '/execs', { cmd: ['a'], cwd: 'relative' }, 400, 'invalid_argument', 'cwd'],
    ['POST', '/execs', { cmd: ['a'], stdin: '!', stdin_encoding: 'base64' }, 400, 'invalid_argument', 'stdin'],
    ['POST', '/execs?stream=xml', { cmd: ['a'] }, 400, 'invalid_argument', 'stream'],
    ['GET', '/execs?tty=maybe', undefined, 400, 'invalid_argument', 'tty'],
    ['GET', '/execs/none', undefined, 404, 'not_found'],
    ['GET', '/execs/none/result', undefined, 404, 'not_found'],
    ['GET', '/execs/none/log', undefined, 404, 'not_found'],
    ['POST', '/execs/none/stdin', 'x', 404, 'not_found'],
    ['POST', '/execs/none/signal', {}, 404, 'not_found'],
    ['GET', '/execs/a%2Fb', undefined, 400, 'invalid_argument', 'exec_id'],
    ['GET', '/execs/known?wait_ms=soon', undefined, 400, 'invalid_argument', 'wait_ms'],
    ['GET', '/execs/known/result?encoding=hex', undefined, 400, 'invalid_argument', 'encoding'],
    ['GET', '/execs/known/log?offset=-1', undefined, 400, 'invalid_argument', 'offset'],
    ['GET', '/execs/known/log?offset=999999', undefined, 400, 'invalid_argument', 'offset'],
    ['GET', '/execs/known/log?offset=3', undefined, 400, 'invalid_argument', 'offset'],
    ['GET', '/execs/known/log?offset=0&tail=5', undefined, 400, 'invalid_argument', 'tail'],
    ['GET', '/execs/known/log?stream=sse', undefined, 400, 'invalid_argument', 'stream'],
    ['POST', '/execs/known/stdin?offset=x', 'x', 400, 'invalid_argument', 'offset'],
    ['POST', '/execs/known/signal', { signal: 'SIGNOPE' }, 400, 'invalid_argument', 'signal'],
    ['POST', '/execs/known/signal', { tree: 'yes' }, 400, 'invalid_argument', 'tree'],
    ['POST', '/processes/0/signal', {}, 400, 'invalid_argument', 'pid'],
    ['POST', '/processes/abc/signal', {}, 400, 'invalid_argument', 'pid'],
    ['POST', '/processes/4194303/signal', {}, 404, 'not_found'],
  ];
  beforeAll(async () => {
    await started({ id: 'known', shell: 'echo known' });
    await ended('known');
  });

  it.each(refusals)('%s %s %j is %i %s', async (method, path, body, status, code, field) => {
    const answer: Answer = await call(method, `${base}${path}`, body);
    expect({ status: answer.status, code: answer.body.error?.code }, JSON.stringify(answer.body)).toEqual({
      status,
      code,
    });
    if (field !== undefined) expect(answer.body.error.details?.field).toBe(field);
  });

  it('is 404 for every route of an environment that is not there, 401 without a token', async () => {
    const routes: [string, string, unknown][] = [
      ['POST', '/execs', { cmd: ['true'] }],
      ['GET', '/execs', undefined],
      ['GET', '/execs/x', undefined],
      ['GET', '/execs/x/result', undefined],
      ['GET', '/execs/x/log', undefined],
      ['POST', '/execs/x/stdin', 'x'],
      ['POST', '/execs/x/signal', {}],
      ['DELETE', '/execs/x', undefined],
      ['GET', '/processes', undefined],
      ['POST', '/processes/5/signal', {}],
    ];
    for (const [method, path, body] of routes) {
      const away = await call(method, `/v1/environments/none${path}`, body);
      expect(away, `${method} ${path}`).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
      const nobody = await call(method, `${base}${path}`, body, { headers: { authorization: 'Bearer wrong' } });
      expect(nobody.status, `${method} ${path}`).toBe(401);
    }
  });
});
