import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FuseClient } from './client.ts';
import { CutStreamError, FuseApiError, FuseError, FuseExecLostError, FuseLogGapError } from './errors.ts';
import { type InsideScript, type TestExec, TestInside } from './test-inside.ts';

async function inside(script: Partial<InsideScript> = {}) {
  const server = await TestInside.start(script);
  const client = new FuseClient({ baseUrl: server.url, token: 'secret', random: () => 0.01 });
  return { server, environments: client.environments };
}

async function bytesOf(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const textOf = async (stream: ReadableStream<Uint8Array>) => (await bytesOf(stream)).toString();
const bytes = (text: string) => new TextEncoder().encode(text);

const prints = (exec: TestExec) => {
  exec.write('stdout', bytes('out'));
  exec.write('stderr', bytes('err'));
  exec.end({ exit_code: 3 });
};

/** Connections are cut as long as there are cuts left. */
const cuts = (at: readonly number[]) => {
  const left = [...at];
  return () => left.pop();
};

describe('spawn', () => {
  it('hands over both streams and the exit', async () => {
    const { server, environments } = await inside({ onStart: prints });
    await using _ = server;
    const process = await environments.spawn('e', { cmd: ['x'], stdin: 'ignore' });
    const [stdout, stderr, exit] = await Promise.all([textOf(process.stdout), textOf(process.stderr), process.exit]);
    expect([stdout, stderr, exit.exit_code]).toEqual(['out', 'err', 3]);
    expect(await process.result()).toMatchObject({ exit_code: 3, stdout: 'out', stderr: 'err' });
    expect(server.seen.filter((each) => each.includes('/log'))).toEqual([]);
  });

  it('is started once, and gives every byte once, however often its connections break', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.boolean(), fc.uint8Array({ minLength: 1, maxLength: 3_000 })), { maxLength: 30 }),
        fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { maxLength: 8 }),
        fc.integer({ min: 1, max: 5_000 }),
        fc.integer({ min: 0, max: 30 }),
        async (output, cutAt, pieceBytes, early) => {
          const write = (exec: TestExec, part: typeof output) => {
            for (const [isError, piece] of part) exec.write(isError ? 'stderr' : 'stdout', piece);
          };
          const { server, environments } = await inside({
            cut: cuts(cutAt),
            pieceBytes,
            onStart: (exec) => {
              write(exec, output.slice(0, early));
              setTimeout(() => {
                write(exec, output.slice(early));
                exec.end();
              }, 5);
            },
          });
          await using _ = server;
          const process = await environments.spawn('e', { cmd: ['x'], stdin: 'ignore' });
          const [stdout, stderr] = await Promise.all([bytesOf(process.stdout), bytesOf(process.stderr)]);
          const of = (wanted: boolean) =>
            Buffer.concat(output.filter(([is]) => is === wanted).map(([, piece]) => piece));
          expect(Buffer.compare(stdout, of(false))).toBe(0);
          expect(Buffer.compare(stderr, of(true))).toBe(0);
          expect((await process.exit).exit_code).toBe(0);
          expect(server.execs.size).toBe(1);
        },
      ),
      { numRuns: 12 },
    );
  });

  it('sends every byte of stdin once, however often its connections break', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 200_000 }), { maxLength: 20 }),
        fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 10 }),
        async (pieces, cutAt) => {
          const { server, environments } = await inside({
            onStdin: (exec) => {
              if (exec.stdinClosed) exec.end();
            },
          });
          await using _ = server;
          const process = await environments.spawn('e', { cmd: ['cat'] });
          server.script.cut = cuts(cutAt);
          const writer = process.stdin.getWriter();
          for (const piece of pieces) await writer.write(piece);
          await writer.close();
          expect((await process.exit).exit_code).toBe(0);
          expect(Buffer.compare(server.exec(process.id).stdin, Buffer.concat(pieces))).toBe(0);
        },
      ),
      { numRuns: 10 },
    );
  });

  it('gathers small writes into few requests', async () => {
    const { server, environments } = await inside({
      onStdin: (exec) => {
        if (exec.stdinClosed) exec.end();
      },
    });
    await using _ = server;
    const process = await environments.spawn('e', { cmd: ['cat'] });
    const writer = process.stdin.getWriter();
    for (let i = 0; i < 1_000; i++) void writer.write(bytes(`${i}\n`));
    await writer.close();
    await process.exit;
    expect(server.seen.filter((each) => each.includes('/stdin')).length).toBeLessThan(50);
    expect(server.exec(process.id).stdin.toString().split('\n')).toHaveLength(1_001);
  });

  it('tells a writer that the command takes no more', async () => {
    const { server, environments } = await inside({
      onStart: (exec) => {
        exec.stdinClosed = true;
        exec.end();
      },
    });
    await using _ = server;
    const process = await environments.spawn('e', { cmd: ['true'] });
    const writer = process.stdin.getWriter();
    await writer.write(bytes('x')).catch(() => {});
    const error = await writer.close().catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(FuseApiError);
    expect(error).toMatchObject({ details: { reason: 'stdin_closed' } });
    const another = await environments.spawn('e', { cmd: ['true'] });
    await another.stdin.close();
  });

  it('fails typed when its VM is lost, and when its connection is lost for good', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const process = await environments.spawn('e', { cmd: ['x'] });
    server.exec(process.id).write('stdout', bytes('before'));
    server.exec(process.id).lose('the VM died');
    await expect(process.exit).rejects.toMatchObject({ name: 'FuseExecLostError', reason: 'the VM died' });
    await expect(textOf(process.stdout)).rejects.toBeInstanceOf(FuseExecLostError);
    const log: string[] = [];
    for await (const { type } of environments.execs.log('e', process.id)) log.push(type);
    expect(log).toEqual(['stdout']);
    const another = await environments.spawn('e', { cmd: ['x'] }, { patienceMs: 100 });
    await server[Symbol.asyncDispose]();
    await expect(another.exit).rejects.toBeInstanceOf(CutStreamError);
  });

  it('tells what is not kept of its log', async () => {
    const { server, environments } = await inside({
      onStart: (exec) => {
        prints(exec);
        exec.keptFrom = 11;
      },
    });
    await using _ = server;
    const process = await environments.spawn('e', { cmd: ['x'] });
    await expect(textOf(process.stdout)).rejects.toMatchObject({ name: 'FuseLogGapError', from: 0, to: 11 });
    await expect(textOf(process.stderr)).rejects.toBeInstanceOf(FuseLogGapError);
    expect((await process.exit).exit_code).toBe(3);
    const gaps: unknown[] = [];
    const again = await environments.process('e', process.id, { onGap: (gap) => gaps.push(gap) });
    expect([await textOf(again.stdout), await textOf(again.stderr), gaps]).toEqual(['', 'err', [{ from: 0, to: 11 }]]);
  });

  const MiB = 1_048_576;
  const flood = (exec: TestExec) => {
    for (let i = 0; i < 12; i++) exec.write('stdout', new Uint8Array(MiB / 2).fill(i));
    exec.write('stderr', bytes('the end'));
    for (let i = 0; i < 12; i++) exec.write('stdout', new Uint8Array(MiB / 2).fill(i));
    exec.end();
  };

  it('gives a reader of one stream what it wants while nobody reads the other', async () => {
    const { server, environments } = await inside({ onStart: flood });
    await using _ = server;
    const process = await environments.spawn('e', { cmd: ['x'] });
    expect(await textOf(process.stderr)).toBe('the end');
    expect((await process.exit).exit_code).toBe(0);
    const stdout = await bytesOf(process.stdout);
    expect(stdout.length).toBe(12 * MiB);
    expect(stdout.every((byte, at) => byte === Math.floor(at / (MiB / 2)) % 12)).toBe(true);
  });

  it('knows its exit when nobody reads, and reads no more than it may hold', async () => {
    const { server, environments } = await inside({ onStart: flood });
    await using _ = server;
    const process = await environments.spawn('e', { cmd: ['x'] });
    expect((await process.exit).exit_code).toBe(0);
    expect((await bytesOf(process.stdout)).length).toBe(12 * MiB);
    expect(await textOf(process.stderr)).toBe('the end');
  });

  it('reads over what is ignored or cancelled', async () => {
    const { server, environments } = await inside({ onStart: flood });
    await using _ = server;
    const ignoring = await environments.spawn('e', { cmd: ['x'], stdout: 'ignore' });
    expect(await textOf(ignoring.stderr)).toBe('the end');
    const cancelling = await environments.spawn('e', { cmd: ['x'] });
    await cancelling.stdout.cancel();
    expect(await textOf(cancelling.stderr)).toBe('the end');
  });

  it('is killed when its signal is aborted, and when it is disposed of', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const stop = new AbortController();
    const process = await environments.spawn('e', { cmd: ['x'] }, { signal: stop.signal });
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(process.exit).rejects.toBe(reason);
    await expect(textOf(process.stdout)).rejects.toBe(reason);
    await expect.poll(() => server.exec(process.id).killed).toBe(true);
    let id = '';
    {
      await using another = await environments.spawn('e', { cmd: ['x'] });
      id = another.id;
    }
    expect(server.exec(id).killed).toBe(true);
  });

  it('that was taken up again is left alone', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const first = await environments.spawn('e', { cmd: ['x'], id: 'mine' });
    first.detach();
    await expect(first.exit).rejects.toBeInstanceOf(FuseError);
    {
      await using again = await environments.process('e', 'mine');
      const writer = again.stdin.getWriter();
      await writer.write(bytes('more'));
      await writer.close();
      await again.kill('SIGINT', { tree: true });
    }
    expect(server.exec('mine')).toMatchObject({ killed: false, signals: [{ signal: 'SIGINT', tree: true }] });
    expect(server.exec('mine').stdin.toString()).toBe('more');
  });
});

describe('logs', () => {
  it('are read to where they are, or followed to their end, from an offset or a tail', async () => {
    const { server, environments } = await inside({ onStart: prints, heartbeats: true });
    await using _ = server;
    const { id } = await environments.execs.start('e', { cmd: ['x'] });
    const items = async (options: Parameters<typeof environments.execs.log>[2]) => {
      const found: string[] = [];
      for await (const item of environments.execs.log('e', id, options)) found.push(`${item.type}@${item.next}`);
      return found;
    };
    const end = server.exec(id).log.length;
    expect(await items({})).toEqual(['stdout@11', 'stderr@22', `exit@${end}`]);
    expect(await items({ offset: 11, follow: true })).toEqual(['stderr@22', `exit@${end}`]);
    expect(await items({ tail: end - 11 })).toEqual(['stderr@22', `exit@${end}`]);
    expect(await environments.execs.wait('e', id)).toMatchObject({ state: 'exited' });
  });

  it('are waited for no longer than asked', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const { id } = await environments.execs.start('e', { cmd: ['x'] });
    expect(await environments.execs.wait('e', id, { deadlineMs: 30 })).toMatchObject({ state: 'running' });
  });
});

describe('exec', () => {
  it('is asked for again after a lost connection, and run once', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const running = environments.exec('e', { shell: 'x' });
    await expect.poll(() => server.execs.size).toBe(1);
    const [exec] = [...server.execs.values()];
    server.cutAll();
    await expect
      .poll(() => server.seen.some((each) => each.startsWith(`GET /v1/environments/e/execs/${exec?.id}`)))
      .toBe(true);
    if (exec !== undefined) prints(exec);
    expect(await running).toMatchObject({ exit_code: 3, stdout: 'out' });
    expect(server.execs.size).toBe(1);
  });

  it('is sent again when the server never heard of it', async () => {
    const { server, environments } = await inside({ onStart: prints });
    await using _ = server;
    let lost = 0;
    const client = new FuseClient({
      baseUrl: server.url,
      random: () => 0,
      fetch: (url, init) => {
        if (init.method === 'POST' && lost++ === 0) return Promise.reject(new TypeError('the connection was reset'));
        return fetch(url, init);
      },
    });
    expect(await client.environments.exec('e', { shell: 'x' })).toMatchObject({ exit_code: 3 });
    expect(server.execs.size).toBe(1);
    expect(await environments.exec('e', { shell: 'x' })).toMatchObject({ exit_code: 3 });
  });

  it('takes heartbeats before its result, or before an error', async () => {
    const { server, environments } = await inside({ heartbeats: true, onStart: prints });
    await using _ = server;
    expect(await environments.exec('e', { shell: 'x' })).toMatchObject({ exit_code: 3 });
    server.script.onStart = (exec) => exec.lose('the VM died');
    await expect(environments.exec('e', { shell: 'x' })).rejects.toMatchObject({ code: 'vm_lost', status: 502 });
  });

  it('is killed when it is aborted', async () => {
    const { server, environments } = await inside();
    await using _ = server;
    const stop = new AbortController();
    const running = environments.exec('e', { shell: 'x', id: 'mine' }, { signal: stop.signal });
    running.catch(() => {});
    await expect.poll(() => server.execs.size).toBe(1);
    stop.abort(new Error('enough'));
    await expect(running).rejects.toThrow('enough');
    await expect.poll(() => server.exec('mine').killed).toBe(true);
  });
});
