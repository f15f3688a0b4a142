/** The SDK inside of a real environment: commands, files, terminals, ports; and over connections that are cut at random, where nothing may be lost or doubled. */
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FuseClient, FuseExecLostError, type WatchEvent } from '@fuse/sdk';
import { copyIn, copyOut, forwardPort, nodeFetch, nodeWebSockets } from '@fuse/sdk/node';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';
import { unsteadyProxy } from './support/unsteady-proxy.ts';

const RUNS = 6;

let stack: LocalStack;
let client: FuseClient;
let id: string;

const clientAt = (baseUrl: string, retries = 3) =>
  new FuseClient({
    baseUrl,
    token: stack.token,
    fetch: nodeFetch(),
    webSockets: nodeWebSockets(),
    retries,
    random: () => 0,
  });

beforeAll(async () => {
  stack = await LocalStack.up();
  client = clientAt(stack.url);
  ({ id } = await client.environments.create({ task_id: 'sdk', spec: { cpus: 1, ram_mb: 256 } }));
});
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

async function bytesOf(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const textOf = async (stream: ReadableStream<Uint8Array>) => (await bytesOf(stream)).toString();
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** The same for the same seed, and like nothing else. */
function randomBytes(size: number, seed: number): Uint8Array {
  const bytes = Buffer.alloc(size);
  let state = seed | 1;
  for (let at = 0; at < size; at++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}

const inPieces = (bytes: Uint8Array, size: number) =>
  ReadableStream.from(
    (function* () {
      for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
    })(),
  );

/** Some connections last, most are cut somewhere; after so many cuts they are let be. */
function budgets(seed: number, cuts: number): () => number | undefined {
  const draws = randomBytes(4_096, seed);
  let at = 0;
  return () => {
    const draw = draws[at++ % draws.length] ?? 0;
    return at > cuts ? undefined : 500 + draw * draw * 8;
  };
}

const drawn = fc.record({
  seed: fc.nat(),
  size: fc.integer({ min: 0, max: 1_200_000 }),
  piece: fc.integer({ min: 1_000, max: 300_000 }),
  cuts: fc.integer({ min: 1, max: 12 }),
});

describe('over connections that are cut anywhere', () => {
  it('a streaming exec takes and gives every byte once', { timeout: 300_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(drawn, async ({ seed, size, piece, cuts }) => {
        await using proxy = await unsteadyProxy(stack.port, budgets(seed, cuts));
        const bytes = randomBytes(size, seed);
        const process = await clientAt(proxy.url, 20).environments.spawn(id, { cmd: ['tee', '/dev/stderr'] });
        const [stdout, stderr] = await Promise.all([
          bytesOf(process.stdout),
          bytesOf(process.stderr),
          inPieces(bytes, piece).pipeTo(process.stdin),
        ]);
        expect([sha256(stdout), sha256(stderr)]).toEqual([sha256(bytes), sha256(bytes)]);
        expect(await process.exit).toMatchObject({ exit_code: 0, stdout_bytes: size, stderr_bytes: size });
      }),
      { numRuns: RUNS },
    );
  });

  it('a file is the one that was sent, and is read as it is', { timeout: 300_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(drawn, async ({ seed, size, piece, cuts }) => {
        await using proxy = await unsteadyProxy(stack.port, budgets(seed, cuts));
        const bytes = randomBytes(size, seed);
        const files = clientAt(proxy.url, 20).environments.files(id);
        const written = await files.writeFile('/workspace/file', () => inPieces(bytes, piece), { mode: 0o600 });
        expect(written).toMatchObject({ size_bytes: size, sha256: sha256(bytes) });
        expect(sha256(await bytesOf(await files.createReadStream('/workspace/file')))).toBe(sha256(bytes));
      }),
      { numRuns: RUNS },
    );
  });

  it('an exec runs once, and its result comes', { timeout: 120_000 }, async () => {
    let left = 2;
    // Its head is more than that, so it is cut while it is waited for.
    await using proxy = await unsteadyProxy(stack.port, () => (left-- > 0 ? 450 : undefined));
    const result = await clientAt(proxy.url, 20).environments.exec(id, {
      shell: 'echo x >> /workspace/times; sleep 1; wc -l < /workspace/times',
    });
    expect(result).toMatchObject({ exit_code: 0, stdout: '1\n' });
    expect(proxy.cuts).toBeGreaterThan(0);
  });

  it('a terminal goes on where it was', { timeout: 120_000 }, async () => {
    await using proxy = await unsteadyProxy(stack.port, budgets(7, 6));
    const terminal = await clientAt(proxy.url, 20).environments.attach(id, { cmd: ['seq', '1', '60000'] });
    const output = await textOf(terminal.output);
    expect(sha256(Buffer.from(output))).toBe(
      sha256(Buffer.from(Array.from({ length: 60_000 }, (_, i) => `${i + 1}\r\n`).join(''))),
    );
    expect(await terminal.exit).toMatchObject({ exit_code: 0 });
    expect(proxy.cuts).toBeGreaterThan(0);
  });
});

describe('commands', () => {
  it('take 10 MiB of stdin', async () => {
    const bytes = randomBytes(10 * 1_048_576, 3);
    const process = await client.environments.spawn(id, { cmd: ['sha256sum'] });
    await inPieces(bytes, 100_000).pipeTo(process.stdin);
    expect(await textOf(process.stdout)).toBe(`${sha256(bytes)}  -\n`);
    expect(await process.exit).toMatchObject({ exit_code: 0 });
  });

  it('are told their signals, listed, taken up again by their id, and killed with all that they started', async () => {
    const process = await client.environments.spawn(id, {
      id: 'loops',
      shell: 'trap "echo caught" USR1; (setsid sleep 987 &); echo ready; while :; do sleep 0.1; done',
    });
    const reader = process.stdout.getReader();
    expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe('ready\n');
    const sleeper = async () => {
      const { processes } = await client.environments.processes.list(id);
      return processes.find(({ command }) => command.join(' ') === 'sleep 987');
    };
    await expect.poll(sleeper, { timeout: 20_000 }).toMatchObject({ exec_id: 'loops' });
    await process.kill('SIGUSR1');
    expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe('caught\n');
    process.detach();
    const execs = await client.environments.execs.list(id);
    expect(execs.find((exec) => exec.id === 'loops')).toMatchObject({ state: 'running' });
    const again = await client.environments.process(id, 'loops');
    await client.environments.execs.kill(id, 'loops');
    expect(await textOf(again.stdout)).toBe('ready\ncaught\n');
    expect(await again.exit).toMatchObject({ signal: 'SIGKILL' });
    expect(await sleeper()).toBeUndefined();
  });

  it('are lost with their environment, and their log is still there', async () => {
    const other = await client.environments.create({ task_id: 'sdk-lost', spec: { cpus: 1, ram_mb: 256 } });
    const process = await client.environments.spawn(other.id, { shell: 'echo before; sleep 600' });
    const reader = process.stdout.getReader();
    await reader.read();
    await client.environments.destroy(other.id);
    await expect(process.exit).rejects.toBeInstanceOf(FuseExecLostError);
    const log: string[] = [];
    for await (const item of client.environments.execs.log(other.id, process.id))
      if (item.type === 'stdout') log.push(Buffer.from(item.data).toString());
    expect(log.join('')).toBe('before\n');
    expect(await client.environments.execs.get(other.id, process.id)).toMatchObject({ state: 'lost' });
  });
});

describe('files', () => {
  it('are edited, patched, searched, found and watched', async () => {
    const files = client.environments.files(id);
    const events: WatchEvent[] = [];
    await files.mkdir('/workspace/project/src', { recursive: true });
    const watching = new AbortController();
    const watch = files.watch('/workspace/project', { recursive: true, signal: watching.signal });
    await watch.next();
    const seen = (async () => {
      for await (const event of watch) events.push(event);
    })().catch((error: unknown) => {
      if (!watching.signal.aborted) throw error;
    });
    await files.writeFile('/workspace/project/src/a.txt', 'one\ntwo\nthree\n', { mode: '0640' });
    await files.edit('/workspace/project/src/a.txt', { old_text: 'two', new_text: 'zwei' });
    await expect(
      files.edit('/workspace/project/src/a.txt', { old_text: 'two', new_text: 'zwei' }),
    ).rejects.toMatchObject({ code: 'conflict', details: { reason: 'no_match' } });
    const patch = '--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,3 +1,3 @@\n one\n-zwei\n+deux\n three\n';
    await files.applyPatch('/workspace/project', patch);
    await expect(files.applyPatch('/workspace/project', patch)).rejects.toMatchObject({
      details: { reason: 'stale_patch' },
    });
    expect(await files.readFile('/workspace/project/src/a.txt', { encoding: 'utf8' })).toBe('one\ndeux\nthree\n');
    expect(await files.stat('/workspace/project/src/a.txt')).toMatchObject({ mode: '0640', type: 'file' });
    const { matches } = await files.search('/workspace/project', 'd[e]ux');
    expect(matches).toMatchObject([{ path: '/workspace/project/src/a.txt', line: 2, text: 'deux' }]);
    const found = await files.glob('**/*.txt', { cwd: '/workspace/project' });
    expect(found.entries.map(({ path }) => path)).toEqual(['/workspace/project/src/a.txt']);
    await files.rename('/workspace/project/src/a.txt', '/workspace/project/b.txt');
    await files.symlink('b.txt', '/workspace/project/link');
    expect(await files.lstat('/workspace/project/link')).toMatchObject({ type: 'symlink', target: 'b.txt' });
    expect((await files.readdir('/workspace/project', { recursive: true })).map(({ name }) => name)).toEqual([
      'b.txt',
      'link',
      'src',
    ]);
    expect(await files.rm('/workspace/project/src', { recursive: true })).toBe(1);
    await expect
      .poll(() => events.some(({ type, path }) => type === 'removed' && path === '/workspace/project/src'), {
        timeout: 20_000,
      })
      .toBe(true);
    expect(events.map(({ path }) => path)).toContain('/workspace/project/src/a.txt');
    watching.abort();
    await seen;
  });

  it('are copied in and out with their modes', async () => {
    const local = await mkdtemp(join(tmpdir(), 'fuse-e2e-sdk-'));
    try {
      await mkdir(join(local, 'in', 'deep'), { recursive: true });
      const bytes = randomBytes(3_000_000, 5);
      await writeFile(join(local, 'in', 'deep', 'data'), bytes, { mode: 0o640 });
      await writeFile(join(local, 'in', 'run.sh'), '#!/bin/sh\necho ran\n', { mode: 0o755 });
      const copied = await copyIn(client, join(local, 'in'), id, '/workspace/copied');
      expect(copied).toMatchObject({ files: 2, directories: 1, bytes: 3_000_019, skipped: [] });
      expect(await client.environments.exec(id, { cmd: ['/workspace/copied/run.sh'] })).toMatchObject({
        stdout: 'ran\n',
      });
      await client.environments.exec(id, { shell: 'cd /workspace/copied && ln -s /etc/passwd out && ln -s run.sh in' });
      const back = await copyOut(client, id, '/workspace/copied', join(local, 'out'));
      expect(back).toMatchObject({ files: 2, links: 1, skipped: [{ path: 'out', reason: 'link_leads_out' }] });
      expect(sha256(await readFile(join(local, 'out', 'deep', 'data')))).toBe(sha256(bytes));
      expect((await stat(join(local, 'out', 'deep', 'data'))).mode & 0o777).toBe(0o640);
      await copyOut(client, id, '/workspace/copied/run.sh', join(local, 'one'));
      expect((await stat(join(local, 'one'))).mode & 0o777).toBe(0o755);
    } finally {
      await rm(local, { recursive: true });
    }
  });
});

it('a terminal types, resizes, and is joined again with its scrollback', async () => {
  const terminal = await client.environments.attach(id, { rows: 30, cols: 90, session: 'work', cmd: ['sh'] });
  const output = terminal.output.getReader();
  let text = '';
  const says = async (wanted: string) => {
    while (!text.includes(wanted)) {
      const { done, value } = await output.read();
      if (done) throw new Error(`it ended without saying ${wanted}: ${text}`);
      text += Buffer.from(value).toString();
    }
  };
  await terminal.write('stty size\n');
  await says('30 90');
  await terminal.resize(41, 101);
  await terminal.write('stty size\n');
  await says('41 101');
  await terminal.close();
  const again = await client.environments.attach(id, { rows: 41, cols: 101, session: 'work' });
  const reading = textOf(again.output);
  await again.write('exit 9\n');
  expect(await reading).toContain('41 101');
  expect(await again.exit).toMatchObject({ exit_code: 9 });
});

it('a port is forwarded to a server in the guest', async () => {
  const files = client.environments.files(id);
  const bytes = randomBytes(4_000_000, 9);
  await files.writeFile('/workspace/www/data', bytes);
  // `python3 -m http.server` asks a resolver for its own name first, and there is none.
  const serve =
    'import http.server as h, socketserver as s; s.ThreadingTCPServer(("127.0.0.1", 8000), h.SimpleHTTPRequestHandler).serve_forever()';
  await client.environments.execs.start(id, { cmd: ['python3', '-c', serve], cwd: '/workspace/www' });
  const refused = async () => {
    try {
      (await client.environments.connectPort(id, 8000)).close();
    } catch (error) {
      expect(error).toMatchObject({ code: 'unavailable', details: { reason: 'connection_refused' } });
      return true;
    }
    return false;
  };
  await expect.poll(refused, { timeout: 30_000 }).toBe(false);
  await using forwarded = await forwardPort(client, id, { remotePort: 8000 });
  for (let i = 0; i < 3; i++) {
    const response = await fetch(`http://127.0.0.1:${forwarded.localPort}/data`);
    expect(sha256(new Uint8Array(await response.arrayBuffer()))).toBe(sha256(bytes));
  }
  const { status } = await fetch(`http://127.0.0.1:${forwarded.localPort}/none`);
  expect(status).toBe(404);
});
