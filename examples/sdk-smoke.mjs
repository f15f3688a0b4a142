/**
 * What an agent does with the SDK, once: for runtimes other than Node, which the tests do not have. FUSE_URL and FUSE_TOKEN as for the CLI.
 *
 *   node examples/sdk-smoke.mjs         bun examples/sdk-smoke.mjs         deno run -A examples/sdk-smoke.mjs
 */
import { FuseClient } from '../packages/sdk/dist/index.js';

const { FUSE_URL = 'http://127.0.0.1:8080', FUSE_TOKEN = '' } = process.env;
// Node 20 has no WebSocket of its own.
const webSockets =
  'WebSocket' in globalThis
    ? {}
    : { webSockets: (await import('../packages/sdk/dist/node/index.js')).nodeWebSockets() };
const { environments } = new FuseClient({ baseUrl: FUSE_URL, token: FUSE_TOKEN, ...webSockets });
const encoder = new TextEncoder();
const MEGABYTE = 1_000_000;

/** @param {AsyncIterable<Uint8Array>} stream */
async function textOf(stream) {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of stream) text += decoder.decode(chunk, { stream: true });
  return text;
}

/** @param {string} what @param {unknown} seen @param {unknown} wanted */
function expect(what, seen, wanted) {
  if (JSON.stringify(seen) !== JSON.stringify(wanted)) throw new Error(`${what}: ${JSON.stringify(seen)}`);
  console.log(`ok  ${what}`);
}

const { id } = await environments.create({ task_id: `smoke-${Date.now()}`, spec: { ram_mb: 256 } });
try {
  const { exit_code, stdout } = await environments.exec(id, { shell: 'echo out; exit 3' });
  expect('exec', [exit_code, stdout], [3, 'out\n']);

  const sort = await environments.spawn(id, { cmd: ['sort'] });
  const writer = sort.stdin.getWriter();
  for (const word of ['pear', 'apple', 'fig']) await writer.write(encoder.encode(`${word}\n`));
  await writer.close();
  expect('streams both ways', [await textOf(sort.stdout), (await sort.exit).exit_code], ['apple\nfig\npear\n', 0]);

  const slow = await environments.spawn(id, { shell: 'for i in 1 2 3; do echo $i; sleep 0.2; done', stdin: 'ignore' });
  expect('output as it comes', await textOf(slow.stdout), '1\n2\n3\n');

  const files = environments.files(id);
  const bytes = new Uint8Array(3 * MEGABYTE).map((_, at) => (at * 31) % 251);
  await files.writeFile('/tmp/data.bin', bytes);
  const back = await files.readFile('/tmp/data.bin');
  expect('a file there and back', [back.length, back.every((byte, at) => byte === bytes[at])], [bytes.length, true]);
  let size = 0;
  for await (const chunk of await files.createReadStream('/tmp/data.bin')) size += chunk.length;
  expect('a file as a stream', size, bytes.length);
  expect('a directory', (await files.readdir('/tmp')).map((entry) => entry.name ?? entry).includes('data.bin'), true);

  const controller = new AbortController();
  setTimeout(() => controller.abort(), 500);
  const aborted = await environments
    .exec(id, { cmd: ['sleep', '60'] }, { signal: controller.signal })
    .catch((error) => error.name);
  expect('an exec that is aborted', aborted, 'AbortError');

  const terminal = await environments.attach(id, {
    session: 'main',
    rows: 24,
    cols: 80,
    cmd: ['sh', '-c', 'tty; stty size'],
  });
  expect('a terminal', (await textOf(terminal.output)).includes('24 80'), true);

  await environments.execs.start(id, { shell: 'python3 -m http.server 8000 --bind 127.0.0.1' });
  let answer = '';
  for (let tries = 0; answer === '' && tries < 50; tries += 1) {
    try {
      const port = await environments.connectPort(id, 8000);
      const request = port.writable.getWriter();
      await request.write(encoder.encode('GET / HTTP/1.0\r\n\r\n'));
      answer = await textOf(port.readable);
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 200)); // it does not listen yet
    }
  }
  expect('a port', answer.startsWith('HTTP/1.0 200'), true);

  const events = await environments.events(id);
  let state = '';
  for await (const event of events) {
    state = event.state;
    break;
  }
  expect('events', state, 'running');
  const missing = await environments.get('fuse-none').catch((error) => [error.name, error.code, error.status]);
  expect('an error', missing, ['FuseApiError', 'not_found', 404]);
} finally {
  await environments.destroy(id);
}
console.log('all of it works');
