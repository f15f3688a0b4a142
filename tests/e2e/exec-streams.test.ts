/** checks.md, "Exec and processes": execs by their ids and as streams, through the public API on real VMs. */
import { createHash, randomBytes } from 'node:crypto';
import { request } from 'node:http';
import {
  type Exec,
  type ExecLogLine,
  FrameParser,
  frameType,
  type ListExecs,
  type ListProcesses,
} from '@fuse/contract';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack, signalVmm } from './support/local-stack.ts';

let stack: LocalStack;
let base: string;
beforeAll(async () => {
  stack = await LocalStack.up();
  base = await create('exec-streams');
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

async function create(task_id: string): Promise<string> {
  const { id } = await stack.client.environments.create({ task_id, spec: { ram_mb: 256 } });
  return `/v1/environments/${id}`;
}

interface Streamed {
  status: number;
  bytes: Buffer;
  trailers: NodeJS.Dict<string>;
  execId: string;
  isWhole: boolean;
}

/** An answer as it comes, to its end, its cut, or until `leaveWhen`. */
function streamed(
  path: string,
  {
    method = 'GET',
    body,
    leaveWhen = () => false,
  }: { method?: string; body?: Buffer | object; leaveWhen?: (bytes: Buffer) => boolean } = {},
): Promise<Streamed> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${stack.token}` };
    const call = request(`${stack.url}${path}`, { method, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      let left = false;
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        if (left || !leaveWhen(Buffer.concat(chunks))) return;
        left = true;
        response.destroy();
      });
      response.on('error', () => {}); // 'close' follows
      response.once('close', () =>
        resolve({
          status: response.statusCode ?? 0,
          bytes: Buffer.concat(chunks),
          trailers: response.trailers,
          execId: String(response.headers['fuse-exec-id']),
          isWhole: response.complete && !left,
        }),
      );
    });
    call.on('error', reject);
    call.end(Buffer.isBuffer(body) || body === undefined ? body : JSON.stringify(body));
  });
}

const start = (form: string, body: object, leaveWhen?: (bytes: Buffer) => boolean) =>
  streamed(`${base}/execs?stream=${form}`, { method: 'POST', body, ...(leaveWhen === undefined ? {} : { leaveWhen }) });
const post = async (path: string, body: object): Promise<{ status: number; body: unknown }> => {
  const answer = await streamed(path, { method: 'POST', body });
  return { status: answer.status, body: answer.bytes.length === 0 ? undefined : JSON.parse(answer.bytes.toString()) };
};
const get = async <T>(path: string): Promise<T> => JSON.parse((await streamed(path)).bytes.toString()) as T;
const ended = (id: string, of = base) => get<Exec>(`${of}/execs/${id}?wait_ms=60000`);
const shell = async (script: string): Promise<string> => {
  const { body } = await post(`${base}?action=exec`, { shell: script, timeout_ms: 60_000 });
  return (body as { stdout: string }).stdout;
};
const sleeping = async (): Promise<number> => Number(await shell(`ps -eo args | grep -c '^sleep 7[0-9][0-9]' || true`));
const linesOf = (bytes: Buffer): ExecLogLine[] =>
  bytes
    .toString()
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as ExecLogLine);
const textOf = (lines: readonly ExecLogLine[], stream = 'stdout'): string =>
  lines.map((line) => ('stream' in line && line.stream === stream ? line.data : '')).join('');
const sum = (bytes: Buffer | string): string => createHash('sha256').update(bytes).digest('hex');

describe('a streamed exec', { timeout: 120_000 }, () => {
  it('ends when its command does, with all that it printed, whatever holds the pipe; the child lives on', async () => {
    for (const form of ['ndjson', 'text', 'frames']) {
      const answer = await start(form, { shell: 'sleep 701 & (setsid sleep 702 &) ; echo done; exit 3' });
      expect(answer).toMatchObject({ status: 200, isWhole: true });
      expect(answer.bytes.toString()).toContain('done');
      if (form === 'text') expect(answer.trailers).toEqual({ 'fuse-exit-code': '3' });
    }
    expect(await sleeping()).toBe(6);
    await shell('pkill sleep; true');
  });

  it('leaves nothing of its tree after a timeout, double-forked and in sessions of their own included', async () => {
    const script = 'echo before; sleep 711 & setsid sleep 712 & (setsid sh -c "sleep 713 & sleep 714" &) ; sleep 715';
    for (const form of ['ndjson', 'text']) {
      const answer = await start(form, { shell: script, timeout_ms: 1_500 });
      expect(answer.isWhole).toBe(true);
      expect(answer.bytes.toString()).toContain('before');
      if (form === 'text') expect(answer.trailers).toEqual({ 'fuse-exit-code': '124' });
      else expect(linesOf(answer.bytes).at(-1)).toMatchObject({ exit: { exit_code: 124, timed_out: true } });
      expect(await sleeping()).toBe(0);
    }
  });

  it('gives a megabyte of CJK and a character that is split by a pause whole, and random bytes byte for byte', async () => {
    const cjk = await start('ndjson', {
      cmd: ['python3', '-c', 'import sys; sys.stdout.write("漢字かな" * 90_000)'],
    });
    expect(sum(textOf(linesOf(cjk.bytes)))).toBe(sum('漢字かな'.repeat(90_000)));
    expect(cjk.bytes.toString()).not.toContain('\uFFFD');
    const split = await start('ndjson', { shell: `printf '\\346\\274'; sleep 0.5; printf '\\242\\n'` });
    expect(textOf(linesOf(split.bytes))).toBe('漢\n');
    const script =
      'import random,sys\nr=random.Random(7)\na=r.randbytes(300000);b=r.randbytes(300000)\nsys.stdout.buffer.write(a);sys.stderr.buffer.write(b)';
    const expected = await shell(
      `python3 -c '${script.replace(/sys.stdout.*$/, 'import hashlib; print(hashlib.sha256(a).hexdigest(),hashlib.sha256(b).hexdigest())')}'`,
    );
    const { bytes } = await start('frames', { cmd: ['python3', '-c', script] });
    const frames = [...new FrameParser().push(bytes)];
    const of = (type: number) =>
      Buffer.concat(frames.filter((each) => each.type === type).map(({ payload }) => payload));
    expect(`${sum(of(frameType.stdout))} ${sum(of(frameType.stderr))}`).toBe(expected.trim());
  });

  it('does not deadlock on much of one stream while the other waits', async () => {
    const answer = await start('ndjson', { shell: 'head -c 400000 /dev/zero | tr "\\0" e >&2; echo out' });
    const lines = linesOf(answer.bytes);
    expect(textOf(lines)).toBe('out\n');
    expect(textOf(lines, 'stderr').length).toBe(400_000);
  });

  it('goes on at its offset after lost connections, without gap or repeat, and is started once', async () => {
    const script =
      'echo x >> /tmp/starts; for i in $(seq 1 400); do echo "line $i 漢字"; [ $((i % 40)) = 0 ] && sleep 0.1; done';
    let text = '';
    let offset = 0;
    for (let cut = 200; ; cut += 500) {
      const body = { id: 'again', shell: script };
      const leaveWhen = (bytes: Buffer) => bytes.length > cut;
      const answer =
        offset === 0
          ? await start('ndjson', body, leaveWhen)
          : await streamed(`${base}/execs/again/log?follow=1&offset=${offset}`, { leaveWhen });
      for (const line of linesOf(answer.bytes)) {
        if ('stream' in line) text += line.data;
        if ('offset' in line) offset = line.offset;
      }
      if (answer.isWhole) break;
    }
    expect(text).toBe(Array.from({ length: 400 }, (_, at) => `line ${at + 1} 漢字\n`).join(''));
    expect((await post(`${base}/execs`, { id: 'again', shell: script })).status).toBe(200);
    expect(await shell('wc -l < /tmp/starts')).toBe('1\n');
  });

  it('is refused when its program does not exist, and there is none of it', async () => {
    const answer = await start('ndjson', { id: 'phantom', cmd: ['/no/such/program'] });
    expect(answer.status).toBe(400);
    expect(JSON.parse(answer.bytes.toString())).toMatchObject({ error: { details: { field: 'cmd' } } });
    expect((await streamed(`${base}/execs/phantom`)).status).toBe(404);
    const { execs } = await get<ListExecs>(`${base}/execs`);
    expect(execs.map(({ id }) => id)).not.toContain('phantom');
  });

  it('that is silent is kept alive, and so is a call that waits', async () => {
    const [stream, call] = await Promise.all([
      start('ndjson', { shell: 'sleep 18; echo end' }),
      streamed(`${base}?action=exec`, { method: 'POST', body: { shell: 'sleep 18; echo end' } }),
    ]);
    expect(linesOf(stream.bytes)[0]).toEqual({ heartbeat: true });
    expect(call.bytes.toString()).toMatch(/^ +\{/);
    expect(JSON.parse(call.bytes.toString())).toMatchObject({ stdout: 'end\n', exit_code: 0 });
  });
});

describe('stdin', { timeout: 120_000 }, () => {
  it('of 10 MiB arrives whole with its end, in one request or in pieces', async () => {
    const bytes = randomBytes(10 * 1_048_576);
    await post(`${base}/execs`, { id: 'stdin', cmd: ['sha256sum'], stdin_open: true });
    const half = bytes.length / 2;
    const put = (query: string, body: Buffer) =>
      streamed(`${base}/execs/stdin/stdin?${query}`, { method: 'POST', body });
    expect((await put('offset=0', bytes.subarray(0, half))).status).toBe(200);
    // The same again is passed over.
    const rest = await put(`offset=${half - 1_000}&end=1`, bytes.subarray(half - 1_000));
    expect(JSON.parse(rest.bytes.toString())).toEqual({ stdin_bytes: bytes.length, closed: true });
    expect(await ended('stdin')).toMatchObject({ state: 'exited' });
    expect(await get(`${base}/execs/stdin/result`)).toMatchObject({ stdout: `${sum(bytes)}  -\n` });
  });
});

describe('execs and processes', { timeout: 120_000 }, () => {
  it('without bound are bounded, counted, and hold up no other', async () => {
    const { status, body } = await post(`${base}?action=exec`, { shell: 'yes', timeout_ms: 2_000, background: true });
    expect(status).toBe(202);
    const end = await ended((body as Exec).id);
    expect(end).toMatchObject({ exit: { timed_out: true } });
    expect(end.exit?.stdout_bytes).toBeGreaterThan(1_000_000);
    const { bytes } = await streamed(`${base}/execs/${end.id}/log?stream=frames`);
    expect(bytes.length).toBeLessThan(9 * 1_048_576);
    expect(await shell('echo next')).toBe('next\n');
  });

  it('are listed with what they use, and take signals, one of them or the whole tree', async () => {
    await post(`${base}/execs`, {
      id: 'tree',
      shell: 'trap "echo caught; exit 9" INT; setsid sleep 721 & sleep 722 & wait; wait',
    });
    const mine = async () => {
      const { processes } = await get<ListProcesses>(`${base}/processes`);
      return processes.filter(({ exec_id }) => exec_id === 'tree');
    };
    await expect.poll(async () => (await mine()).length, { timeout: 20_000 }).toBe(3);
    const sleeper = (await mine()).find(({ command }) => command.includes('722'));
    expect(sleeper).toMatchObject({ user: 'root', command: ['sleep', '722'], memory_bytes: expect.any(Number) });
    expect((await post(`${base}/processes/${sleeper?.pid}/signal`, { signal: 'SIGKILL' })).status).toBe(204);
    await expect.poll(async () => (await mine()).length, { timeout: 20_000 }).toBe(2);
    expect((await post(`${base}/execs/tree/signal`, { signal: 'SIGINT' })).status).toBe(204);
    expect(await ended('tree')).toMatchObject({ exit: { exit_code: 9 } });
    expect((await post(`${base}/execs/tree/signal`, { signal: 'SIGKILL', tree: true })).status).toBe(204);
    await expect.poll(sleeping, { timeout: 20_000 }).toBe(0);

    await post(`${base}/execs`, { id: 'deleted', shell: '(setsid sleep 723 &); sleep 724' });
    await expect.poll(sleeping, { timeout: 20_000 }).toBe(2);
    expect((await streamed(`${base}/execs/deleted`, { method: 'DELETE' })).status).toBe(204);
    expect(await ended('deleted')).toMatchObject({ exit: { signal: 'SIGKILL' } });
    expect(await sleeping()).toBe(0);
  });

  it('leave no process when they are cancelled at any moment, 200 times', { timeout: 300_000 }, async () => {
    for (let round = 0; round < 10; round += 1)
      await Promise.all(
        Array.from({ length: 20 }, async () => {
          const controller = new AbortController();
          setTimeout(() => controller.abort(), Math.random() * 1_000);
          const options = { method: 'POST', body: JSON.stringify({ shell: 'sleep 731' }), signal: controller.signal };
          await stack.request(`${base}?action=exec`, options).then(
            (answer) => answer.text(),
            () => {},
          );
        }),
      );
    await expect.poll(sleeping, { timeout: 60_000 }).toBe(0);
    expect(await shell('echo serving')).toBe('serving\n');
  });
});

describe('what became of an exec', { timeout: 180_000 }, () => {
  it('is told within seconds when the VM dies under it, in every form, and by its id from then on', async () => {
    const before = new Set(await stack.vmmPids());
    const dying = await create('exec-dying');
    const [pid] = (await stack.vmmPids()).filter((each) => !before.has(each));
    const forms = ['ndjson', 'text', 'frames'];
    let seen = 0;
    let killedAt = Number.NaN;
    const answers = await Promise.all(
      forms.map((form) =>
        streamed(`${dying}/execs?stream=${form}`, {
          method: 'POST',
          body: { id: `of-${form}`, shell: 'echo before; sleep 741' },
          leaveWhen: (bytes) => {
            if (bytes.includes('before') && ++seen === forms.length) {
              killedAt = performance.now();
              signalVmm(pid, 'SIGKILL');
            }
            return false;
          },
        }),
      ),
    );
    expect(performance.now() - killedAt).toBeLessThan(15_000);
    const [ndjson, text, frames] = answers;
    expect(linesOf(ndjson?.bytes ?? Buffer.alloc(0)).at(-1)).toMatchObject({ lost: expect.any(String) });
    expect(text).toMatchObject({ isWhole: false, trailers: {} });
    expect(frames).toMatchObject({ isWhole: false });
    for (const form of forms) expect(await ended(`of-${form}`, dying)).toMatchObject({ state: 'lost' });
    expect((await streamed(`${dying}/execs/of-text/result`)).status).toBe(502);
    // Also once the reconciler has taken away what was left of the VM.
    await expect.poll(async () => (await streamed(dying)).status, { timeout: 30_000 }).toBe(404);
    expect(await ended('of-text', dying)).toMatchObject({ state: 'lost' });
    expect((await streamed(`${dying}/execs/of-text/log?stream=frames`)).bytes.toString()).toContain('before');
  });

  it('is read while its environment is paused, after it was resumed, and after it was destroyed', async () => {
    const id = 'exec-paused';
    const path = await create(id);
    const script = 'echo first; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo second; exit 4';
    const following = streamed(`${path}/execs?stream=ndjson`, { method: 'POST', body: { id: 'long', shell: script } });
    await post(`${path}?action=exec`, { id: 'short', shell: 'echo short; exit 2' });
    const log = (of: string) => streamed(`${path}/execs/${of}/log`);
    await expect.poll(async () => (await log('long')).bytes.toString(), { timeout: 20_000 }).toContain('first');
    const short = await get(`${path}/execs/short/result`);
    expect(short).toMatchObject({ exit_code: 2, stdout: 'short\n' });
    expect((await post(`${path}?action=pause`, {})).status).toBe(200);
    expect(await get(`${path}/execs/short/result`)).toEqual(short);
    expect(await get(`${path}/execs/long`)).toMatchObject({ state: 'running' });
    expect((await log('long')).bytes.toString()).toContain('first');
    expect((await post(`${path}?action=resume`, {})).status).toBe(200);
    await post(`${path}?action=exec`, { shell: 'touch /tmp/go' });
    const { bytes, isWhole } = await following;
    expect(isWhole).toBe(true);
    expect(textOf(linesOf(bytes))).toBe('first\nsecond\n');
    const whole = (await log('long')).bytes;
    await post(`${path}/execs`, { id: 'cut-off', shell: 'sleep 751' });
    await stack.client.environments.destroy(`fuse-${id}`);
    expect(await get(`${path}/execs/short/result`)).toEqual(short);
    expect((await log('long')).bytes).toEqual(whole);
    expect(await get(`${path}/execs/cut-off`)).toMatchObject({ state: 'lost' });
    const { execs } = await get<ListExecs>(`${path}/execs`);
    expect(execs.map((each) => each.id)).toEqual(expect.arrayContaining(['cut-off', 'short', 'long']));
  });

  it('is known after the service was killed in the middle of it', async () => {
    const script = 'for i in $(seq 1 60); do echo "tick $i"; sleep 0.1; done';
    const first = await start(
      'ndjson',
      { id: 'ticking', shell: script },
      (bytes) => bytes.includes('tick 5"') || bytes.includes('tick 5\\n'),
    );
    await stack.end('SIGKILL');
    await stack.start();
    const seen = linesOf(first.bytes);
    const last = seen.at(-1);
    const offset = last !== undefined && 'offset' in last ? last.offset : 0;
    const rest = await streamed(`${base}/execs/ticking/log?follow=1&offset=${offset}`);
    expect(rest.isWhole).toBe(true);
    expect(textOf([...seen, ...linesOf(rest.bytes)])).toBe(
      Array.from({ length: 60 }, (_, at) => `tick ${at + 1}\n`).join(''),
    );
  });
});
