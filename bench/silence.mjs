/**
 * Commands on a real VM that print nothing for a long time, followed in every way, straight and through a proxy that cuts connections that are idle; beside them a
 * startup that takes three quarters of that.
 *
 *   node bench/silence.mjs [--seconds 1200] [--idle 20]
 */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { parseArgs } from 'node:util';
import { FuseClient } from '../packages/sdk/dist/index.js';
import { nodeFetch, nodeWebSockets } from '../packages/sdk/dist/node/index.js';
import { localStack } from './local-stack.mjs';

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '1200' }, idle: { type: 'string', default: '20' } },
});
const seconds = Number(values.seconds);
const idleMs = Number(values.idle) * 1_000;
const stack = await localStack();
const proxy = await idleCutting(Number(new URL(stack.url).port));
const shell = `sleep ${seconds}; echo end`;
const { id } = await stack.client.environments.create({ task_id: 'silent', spec: { ram_mb: 256 } });
const startup_script = `sleep ${Math.round(seconds * 0.75)}; echo done > /tmp/done`;
const late = {
  task_id: 'late',
  spec: { ram_mb: 256 },
  wait: false,
  startup_script,
  startup_script_timeout_seconds: 7_200,
};
const { id: lateId } = await stack.client.environments.create(late);

let failed = 0;
await Promise.all(
  [
    ['straight', stack.url],
    [`cut after ${values.idle} s of silence`, proxy.url],
  ].flatMap(([way = '', url = '']) => {
    const client = new FuseClient({
      baseUrl: url,
      token: stack.token,
      fetch: nodeFetch(),
      webSockets: nodeWebSockets(),
    });
    const { environments } = client;
    /** @type {[string, () => Promise<boolean>][]} */
    const kinds = [
      [
        'exec',
        async () => (await environments.exec(id, { shell, timeout_ms: (seconds + 60) * 1_000 })).stdout === 'end\n',
      ],
      [
        'spawn',
        async () => (await textOf((await environments.spawn(id, { shell, stdin: 'ignore' })).stdout)) === 'end\n',
      ],
      ['lines of JSON, one connection', () => linesEnd(url)],
      ['terminal, a WebSocket', async () => (await textOf((await terminal(client, way)).output)).includes('end')],
      ['events of the startup', () => becomesRunning(client)],
    ];
    return kinds.map(async ([kind, work]) => {
      const from = performance.now();
      const outcome = await work().catch((/** @type {unknown} */ error) => String(error));
      if (outcome !== true) failed += 1;
      const took = ((performance.now() - from) / 1_000).toFixed(0);
      process.stdout.write(`${kind}, ${way}: ${outcome === true ? 'to its end' : outcome} after ${took} s\n`);
    });
  }),
);
process.stdout.write(`${proxy.cuts()} connections were cut\n`);
await proxy.close();
await stack[Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]();
process.exit(failed === 0 ? 0 : 1);

/** @param {string} url */
async function linesEnd(url) {
  const headers = { authorization: `Bearer ${stack.token}` };
  const body = JSON.stringify({ shell });
  const answer = await nodeFetch()(`${url}/v1/environments/${id}/execs?stream=ndjson`, {
    method: 'POST',
    headers,
    body,
  });
  return (await answer.text()).trimEnd().split('\n').at(-1)?.includes('"exit_code":0') === true;
}

/** @param {FuseClient} client @param {string} way */
function terminal(client, way) {
  const session = `terminal-${way.length}`;
  return client.environments.attach(id, { session, rows: 24, cols: 80, cmd: ['sh', '-c', shell] });
}

/** @param {FuseClient} client */
async function becomesRunning(client) {
  for await (const { state } of await client.environments.events(lateId)) if (state === 'running') return true;
  return false;
}

/** @param {AsyncIterable<Uint8Array>} stream */
async function textOf(stream) {
  let text = '';
  for await (const chunk of stream) text += Buffer.from(chunk).toString();
  return text;
}

/** @param {number} port */
async function idleCutting(port) {
  let cuts = 0;
  const server = createServer({ noDelay: true }, (client) => {
    const service = connect(port, '127.0.0.1');
    const idle = setTimeout(() => {
      cuts += 1;
      client.destroy();
      service.destroy();
    }, idleMs);
    for (const [from, to] of [
      [client, service],
      [service, client],
    ]) {
      from?.on('error', () => {});
      from?.on('data', () => idle.refresh());
      from?.once('close', () => {
        clearTimeout(idle);
        to?.destroy();
      });
      if (to !== undefined) from?.pipe(to);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const at = typeof address === 'object' && address !== null ? address.port : 0;
  return { url: `http://127.0.0.1:${at}`, cuts: () => cuts, close: () => new Promise((done) => server.close(done)) };
}
