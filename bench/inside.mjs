/**
 * What is done inside an environment, through the public API and the SDK, beside the same over the raw guest channel of a VM from the same template, in
 * turns in one run:
 *
 *   node bench/inside.mjs [--n 100] [--warm-up 2000] [--mib 100] [--ram 512] [--only exec,many,stream,keys,pipe,file,tar,http] [--stack local|separate]
 *
 * exec    round trip of `true`, one at a time
 * many    the same, 50 at once
 * stream  start of a command -> the first byte that it writes
 * keys    a key typed into a terminal -> its echo
 * pipe    MiB up into a command's stdin and down from its stdout
 * file    MiB up and down as a file; tar: in an archive
 * http    requests over 8 kept-alive connections to a server in the guest (answers of 1 KiB)
 *
 * With the processor time of all that takes part, which a busy machine changes less than how long it takes. For profiles: FUSE_BENCH_NODE_ARGUMENTS.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { FuseClient } from '../packages/sdk/dist/index.js';
import { forwardPort, nodeFetch, nodeWebSockets } from '../packages/sdk/dist/node/index.js';
import { localStack, quantile, report, timed } from './local-stack.mjs';
import { emulatorBelow, ProcessorTime } from './processor-time.mjs';
import { count, exec, freshId, request, responded, send, tunnel } from './raw-calls.mjs';
import { startRawGuest, templateOf } from './raw-guest.mjs';
import { separateStack } from './separate-stack.mjs';

const { values } = parseArgs({
  options: {
    n: { type: 'string', default: '100' },
    mib: { type: 'string', default: '100' },
    ram: { type: 'string', default: '512' },
    rounds: { type: 'string', default: '3' },
    'warm-up': { type: 'string', default: '2000' },
    only: { type: 'string', default: 'exec,many,stream,keys,pipe,file,tar,http' },
    stack: { type: 'string', default: 'local' },
  },
});
const n = Number(values.n);
const bytes = Number(values.mib) * 1_048_576;
const rounds = Number(values.rounds);
const piece = new Uint8Array(65_536).map((_, index) => (index * 2_654_435_761) >>> 24);
const HTTP_CONNECTIONS = 8;
const PARALLEL = 50;
// Both ways run before they are timed: a service and a client that have been up for a while are what is compared, not the compiler, which is done with them after some 2,000 calls.
const WARM_UP = Number(values['warm-up']);
const WARM_UP_MANY = 6;
const WARM_UP_ROUNDS = 2;

const source = await templateOf({ image: 'base', cpus: 1, ramMiB: Number(values.ram), diskGiB: 2 });
const work = await mkdtemp(join(source.dataDirectory, 'inside-'));
const raw = await startRawGuest(source, join(work, 'raw'));
const stack = await (values.stack === 'separate' ? separateStack() : localStack());
const { session } = raw;
const client = new FuseClient({
  baseUrl: stack.url,
  token: stack.token,
  fetch: nodeFetch(),
  webSockets: nodeWebSockets(),
});
const { environments } = client;
/** What each way spends, of all that it needs. */
const spenders = {
  raw: { client: process.pid, guest: raw.pid ?? 0 },
  api: { client: process.pid, ...stack.pids, guest: 0 },
};
try {
  const spec = { cpus: 1, ram_mb: Number(values.ram), storage_gb: 2 };
  const { id } = await environments.create({ task_id: 'inside', spec });
  spenders.api.guest = emulatorBelow(stack.home);
  const parts = { exec: execs, many, stream, keys, pipe, file, tar, http: requests };
  try {
    for (const name of values.only.split(',')) await parts[/** @type {keyof typeof parts} */ (name)](id);
  } finally {
    await environments.destroy(id); // processes of their own leave VMs running
  }
} finally {
  session.destroy();
  await raw.end();
  await stack[Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]();
  await rm(work, { recursive: true, force: true });
}

/** @param {string} id */
async function execs(id) {
  const series = { 'raw: exec': /** @type {number[]} */ ([]), 'API: exec': /** @type {number[]} */ ([]) };
  const spent = spending();
  for (let i = -WARM_UP; i < n; i++) {
    if (i === 0) spent.forget();
    const one = await spent.raw.of(() => timed(() => exec(session, { argv: ['true'] })));
    const other = await spent.api.of(() => timed(() => environments.exec(id, { cmd: ['true'] })));
    if (i < 0) continue;
    series['raw: exec'].push(one.ms);
    series['API: exec'].push(other.ms);
  }
  report('exec of `true`, one at a time', series);
  spent.report(n, 'call');
  ratio(series['API: exec'], series['raw: exec']);
}

/** @param {string} id */
async function many(id) {
  const series = {
    [`raw: ${PARALLEL} at once, all`]: /** @type {number[]} */ ([]),
    [`API: ${PARALLEL} at once, all`]: /** @type {number[]} */ ([]),
    'raw: each of them': /** @type {number[]} */ ([]),
    'API: each of them': /** @type {number[]} */ ([]),
  };
  const at = (/** @type {() => Promise<unknown>} */ call) =>
    timed(() => Promise.all(Array.from({ length: PARALLEL }, async () => (await timed(call)).ms)));
  const spent = spending();
  for (let i = -WARM_UP_MANY; i < rounds * 2; i++) {
    if (i === 0) spent.forget();
    const one = await spent.raw.of(() => at(() => exec(session, { argv: ['true'] })));
    const other = await spent.api.of(() => at(() => environments.exec(id, { cmd: ['true'] })));
    if (i < 0) continue;
    series[`raw: ${PARALLEL} at once, all`]?.push(one.ms);
    series[`API: ${PARALLEL} at once, all`]?.push(other.ms);
    series['raw: each of them']?.push(...one.value);
    series['API: each of them']?.push(...other.value);
  }
  report(`exec of \`true\`, ${PARALLEL} at once`, series);
  spent.report(rounds * 2 * PARALLEL, 'call');
  ratio(series[`API: ${PARALLEL} at once, all`] ?? [], series[`raw: ${PARALLEL} at once, all`] ?? []);
}

/** @param {string} id */
async function stream(id) {
  const series = { 'raw: first byte': /** @type {number[]} */ ([]), 'API: first byte': /** @type {number[]} */ ([]) };
  const argv = ['sh', '-c', 'echo x; exec sleep 0.05'];
  for (let i = -WARM_UP / 10; i < n; i++) {
    const from = performance.now();
    let first = 0;
    await exec(session, { argv }, { onStdout: () => (first ||= performance.now() - from) });
    const start = performance.now();
    const remote = await environments.spawn(id, { cmd: argv, stdin: 'ignore' });
    const reader = remote.stdout.getReader();
    await reader.read();
    const other = performance.now() - start;
    while (!(await reader.read()).done);
    await remote.exit;
    if (i < 0) continue;
    series['raw: first byte'].push(first);
    series['API: first byte'].push(other);
  }
  report('start -> first byte of streamed output', series);
  ratio(series['API: first byte'], series['raw: first byte']);
}

/** @param {string} id */
async function keys(id) {
  const series = { 'raw: echo': /** @type {number[]} */ ([]), 'API: echo': /** @type {number[]} */ ([]) };
  const execId = freshId();
  /** @type {((bytes: Uint8Array) => void)} */
  let onEcho = () => {};
  const started = new Promise((resolve) => {
    void exec(
      session,
      { argv: ['cat'], stdin: true, tty: { rows: 24, cols: 80 } },
      { id: execId, onStdout: (echo) => onEcho(echo), onStarted: () => resolve(undefined) },
    ).catch(() => {}); // the guest is ended under it
  });
  await started;
  const typing = request(session, 'POST', `/v1/execs/${execId}/stdin`, true);
  const terminal = await environments.attach(id, { cmd: ['cat'] });
  const output = terminal.output.getReader();
  const spent = spending();
  for (let i = -WARM_UP; i < n; i++) {
    if (i === 0) spent.forget();
    const key = Buffer.from('x');
    const one = await spent.raw.of(() =>
      timed(
        () =>
          new Promise((resolve) => {
            onEcho = resolve;
            typing.write(key);
          }),
      ),
    );
    const other = await spent.api.of(() =>
      timed(async () => {
        void terminal.write(key);
        await output.read();
      }),
    );
    if (i < 0) continue;
    series['raw: echo'].push(one.ms);
    series['API: echo'].push(other.ms);
  }
  typing.close();
  await terminal.close();
  report('key -> echo in a terminal', series);
  spent.report(n, 'key');
  ratio(series['API: echo'], series['raw: echo']);
}

/** @param {string} id */
async function pipe(id) {
  const size = String(bytes);
  await throughput('pipe up', {
    raw: async () => {
      const execId = freshId();
      /** @type {(value: unknown) => void} */
      let begun = () => {};
      const started = new Promise((resolve) => {
        begun = resolve;
      });
      const ended = exec(
        session,
        { argv: ['sh', '-c', 'cat >/dev/null'], stdin: true },
        { id: execId, onStarted: () => begun(undefined) },
      );
      await started;
      const body = request(session, 'POST', `/v1/execs/${execId}/stdin?end=1`, true);
      await Promise.all([send(body, bytes, piece), responded(body), ended]);
    },
    api: async () => {
      const remote = await environments.spawn(id, { shell: 'cat >/dev/null' });
      const writer = remote.stdin.getWriter();
      for (let sent = 0; sent < bytes; sent += piece.length) await writer.write(piece);
      await writer.close();
      await remote.exit;
    },
  });
  await throughput('pipe down', {
    raw: async () => {
      let got = 0;
      await exec(
        session,
        { argv: ['head', '-c', size, '/dev/zero'] },
        {
          onStdout: (chunk) => {
            got += chunk.length;
          },
        },
      );
      if (got !== bytes) throw new Error(`${got} of ${bytes} bytes`);
    },
    api: async () => {
      const remote = await environments.spawn(id, { cmd: ['head', '-c', size, '/dev/zero'], stdin: 'ignore' });
      const got = await count(remote.stdout);
      await remote.exit;
      if (got !== bytes) throw new Error(`${got} of ${bytes} bytes`);
    },
  });
}

/** The bytes as a stream. */
function source64() {
  let sent = 0;
  return new ReadableStream({
    pull(controller) {
      if (sent >= bytes) return controller.close();
      sent += piece.length;
      controller.enqueue(piece);
    },
  });
}

/** @param {string} id */
async function file(id) {
  const path = '/workspace/big';
  await throughput('file up', {
    raw: async () => {
      const body = request(session, 'PUT', `/v1/files?path=${path}`, true);
      await Promise.all([send(body, bytes, piece), responded(body)]);
    },
    api: () => environments.files(id).writeFile(path, source64()),
  });
  await throughput('file down', {
    raw: async () => {
      const body = request(session, 'GET', `/v1/files?path=${path}`);
      await responded(body);
      if ((await count(body)) !== bytes) throw new Error('short');
    },
    api: async () => {
      if ((await count(await environments.files(id).createReadStream(path))) !== bytes) throw new Error('short');
    },
  });
}

/** @param {string} id */
async function tar(id) {
  const archive = async () => {
    const { pack } = await import('tar-stream');
    const out = pack();
    const entry = out.entry({ name: 'big', size: bytes });
    void (async () => {
      for (let sent = 0; sent < bytes; sent += piece.length)
        if (!entry.write(piece)) await new Promise((resolve) => entry.once('drain', resolve));
      entry.end();
      out.finalize();
    })();
    return out;
  };
  await throughput('tar up', {
    raw: async () => {
      const body = request(session, 'PUT', '/v1/tar?path=/workspace/t', true);
      const sending = (async () => {
        for await (const chunk of await archive())
          if (!body.write(chunk)) await new Promise((resolve) => body.once('drain', resolve));
        body.end();
      })();
      await Promise.all([sending, responded(body)]);
    },
    api: async () => {
      const source = (await archive())[Symbol.asyncIterator]();
      const body = new ReadableStream({
        async pull(controller) {
          const { done, value } = await source.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
      });
      await environments.files(id).untar('/workspace/t', body);
    },
  });
  await throughput('tar down', {
    raw: async () => {
      const body = request(session, 'GET', '/v1/tar?path=/workspace/t');
      await responded(body);
      if ((await count(body)) < bytes) throw new Error('short');
    },
    api: async () => {
      if ((await count(await environments.files(id).tar('/workspace/t'))) < bytes) throw new Error('short');
    },
  });
}

/** @param {string} id */
async function requests(id) {
  const server = `require('http').createServer((q, r) => r.end(Buffer.alloc(1024, 120))).listen(8080, '127.0.0.1', () => console.log('up'))`;
  const argv = ['node', '-e', server];
  await new Promise((resolve) => void exec(session, { argv }, { onStdout: resolve }).catch(() => {}));
  const remote = await environments.spawn(id, { cmd: argv, stdin: 'ignore' });
  await remote.stdout.getReader().read();
  const rawConnections = await Promise.all(Array.from({ length: HTTP_CONNECTIONS }, () => tunnel(session, 8080)));
  const forwarded = await forwardPort(client, id, { remotePort: 8080 });
  const agent = new http.Agent({ keepAlive: true, maxSockets: HTTP_CONNECTIONS });
  const rawRates = [];
  const apiRates = [];
  const get = Buffer.from('GET / HTTP/1.1\r\nHost: guest\r\n\r\n');
  for (let i = -1; i < rounds; i++) {
    const one = await timed(() =>
      Promise.all(
        rawConnections.map(async ({ received, write }) => {
          for (let k = 0; k < n / HTTP_CONNECTIONS; k++) {
            write(get);
            for (let got = 0; got < 1024; ) {
              const chunk =
                received.read() ??
                (await new Promise((resolve) => received.once('readable', () => resolve(received.read()))));
              got += chunk?.length ?? 0;
            }
          }
        }),
      ),
    );
    const other = await timed(() =>
      Promise.all(
        rawConnections.map(async () => {
          for (let k = 0; k < n / HTTP_CONNECTIONS; k++)
            await new Promise((resolve, reject) => {
              const url = { host: '127.0.0.1', port: forwarded.localPort, agent };
              http.get(url, (response) => response.resume().once('end', resolve)).once('error', reject);
            });
        }),
      ),
    );
    if (i < 0) continue;
    rawRates.push((Math.ceil(n / HTTP_CONNECTIONS) * HTTP_CONNECTIONS * 1_000) / one.ms);
    apiRates.push((Math.ceil(n / HTTP_CONNECTIONS) * HTTP_CONNECTIONS * 1_000) / other.ms);
  }
  agent.destroy();
  await forwarded.close();
  await remote.kill('SIGKILL');
  const [rawRate, apiRate] = [quantile(rawRates, 0.5), quantile(apiRates, 0.5)];
  process.stdout.write(
    `HTTP through a forwarded port, requests/s (median of ${rounds}): raw ${rawRate.toFixed(0)}, API ${apiRate.toFixed(0)}: ${((100 * apiRate) / rawRate).toFixed(0)} %\n\n`,
  );
}

/** @param {string} name @param {{raw: () => Promise<unknown>, api: () => Promise<unknown>}} both */
async function throughput(name, { raw: rawWork, api }) {
  const rates = { raw: /** @type {number[]} */ ([]), api: /** @type {number[]} */ ([]) };
  const spent = spending();
  for (let i = -WARM_UP_ROUNDS; i < rounds; i++) {
    if (i === 0) spent.forget();
    const one = await spent.raw.of(() => timed(rawWork));
    const other = await spent.api.of(() => timed(api));
    if (i < 0) continue;
    rates.raw.push(bytes / 1_048.576 / one.ms);
    rates.api.push(bytes / 1_048.576 / other.ms);
  }
  const [rawRate, apiRate] = [quantile(rates.raw, 0.5), quantile(rates.api, 0.5)];
  process.stdout.write(
    `${name}, ${values.mib} MiB, MiB/s (median of ${rounds}; ${cpus().length} x ${cpus()[0]?.model.trim()}): raw ${rawRate.toFixed(1)}, API ${apiRate.toFixed(1)}: ${((100 * apiRate) / rawRate).toFixed(0)} %\n`,
  );
  spent.report((rounds * bytes) / 1_048_576, 'MiB');
}

/** What both ways spend, to be begun anew by `forget` once they are warm. */
function spending() {
  const spent = {
    raw: new ProcessorTime(spenders.raw),
    api: new ProcessorTime(spenders.api),
    forget() {
      spent.raw = new ProcessorTime(spenders.raw);
      spent.api = new ProcessorTime(spenders.api);
    },
    /** @param {number} units @param {string} unit */
    report(units, unit) {
      process.stdout.write(`  raw: ${spent.raw.per(units, unit)}\n  API: ${spent.api.per(units, unit)}\n`);
    },
  };
  return spent;
}

/** @param {number[]} api @param {number[]} rawSeries */
function ratio(api, rawSeries) {
  const of = (/** @type {number} */ q) => (quantile(api, q) / quantile(rawSeries, q)).toFixed(2);
  process.stdout.write(`API / raw: p50 ${of(0.5)} x, p95 ${of(0.95)} x\n\n`);
}
