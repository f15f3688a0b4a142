/**
 * Why the guest channel goes through JsStream: `node bench/http2-abort.mjs socket` ends with "corrupted size vs. prev_size" on Node 20
 * within seconds, `… js` runs to its end. A peer in a process of its own, sessions side by side, streams given up midway.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { argv, env, execPath } from 'node:process';
import { JsStream } from '../apps/host-agent/dist/guest/js-stream.js';
import { chunksOf } from '../apps/host-agent/dist/guest/stream-chunks.js';

const through = argv[2] ?? 'js';
const seconds = Number(argv[3] ?? 20);
if (!['js', 'socket'].includes(through) || !(seconds > 0)) {
  console.error('usage: node bench/http2-abort.mjs [js|socket] [seconds]');
  process.exit(2);
}

const peerSource = `
  const server = require('node:http2').createServer();
  server.on('sessionError', () => {});
  server.on('stream', (stream) => {
    stream.on('error', () => {});
    stream.on('data', () => {});
    stream.respond({ ':status': 200 });
    stream.write(Buffer.alloc(1000));
    stream.write(Buffer.alloc(500));
    setTimeout(() => stream.destroyed || stream.end(), 1);
  });
  server.listen(process.argv[1], () => console.log('listening'));
`;

if (env.MALLOC_PERTURB_ === undefined) {
  // Freed memory is overwritten, so that a use of it shows soon.
  const again = spawn(execPath, argv.slice(1), { stdio: 'inherit', env: { ...env, MALLOC_PERTURB_: '165' } });
  again.once('exit', (code, signal) => {
    console.log(signal === null ? `ended with ${code}` : `aborted (${signal})`);
    process.exitCode = code ?? 1;
  });
} else {
  const directory = await mkdtemp(join(tmpdir(), 'fuse-bench-'));
  const path = join(directory, 'socket');
  const peer = spawn(execPath, ['-e', peerSource, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  await new Promise((resolve) => peer.stdout.once('data', resolve));
  const end = Date.now() + seconds * 1000;
  let requests = 0;
  await Promise.all(Array.from({ length: 3 }, lane));
  console.log(`${requests} requests through ${through}`);
  peer.kill();
  await rm(directory, { recursive: true });

  async function lane() {
    while (Date.now() < end) await session();
  }

  async function session() {
    const socket = connect({ path });
    await new Promise((resolve) => socket.once('connect', resolve));
    const session = connectHttp2('http://guest', {
      createConnection: () => (through === 'js' ? new JsStream(socket) : socket),
      settings: { enablePush: false },
    });
    session.on('error', () => {});
    await new Promise((resolve) => session.once('connect', resolve));
    await Promise.all([0, 1, 2, 3].map((first) => requestsOf(session, first)));
    session.destroy(new Error('over'));
  }

  async function requestsOf(session, first) {
    for (let number = first; number < first + 10; number++) {
      const stream = session.request({ ':method': 'PUT', ':path': '/' }, { endStream: false });
      stream.on('error', () => {});
      stream.end(number % 3 === 0 ? Buffer.alloc(100_000) : '{}');
      for await (const _ of chunksOf(stream, 'a request')) if (number % 5 === 0) break;
      setImmediate(() => stream.destroyed || stream.destroy(new Error('given up')));
      requests += 1;
    }
  }
}
