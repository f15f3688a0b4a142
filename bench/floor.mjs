/**
 * The floor: a bare script that starts QEMU on a template and runs one command over the guest channel, with nothing else around it. What the
 * product adds to this is its own cost.
 *
 *   node bench/floor.mjs [--n 30] [--image base] [--cpus 1] [--ram 512] [--disk 2] [-- command …]
 *
 * Phases, in milliseconds from the start: `disk` the copy of the writable disk, `spawned` QEMU's process exists, `qmp` its control socket
 * answers, `running` the guest runs, `greeting` the guest's first bytes, `command` the command's exit; `again` is the same command once more, by
 * itself; `cpu` is QEMU's processor time up to `command`, which a busy machine does not stretch.
 */
import { execFile, spawn } from 'node:child_process';
import { link, mkdir, mkdtemp, open, readdir, readFile, rm } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { cpus, homedir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { imageNamed, loadAssets } from '../apps/host-agent/dist/images/assets.js';
import { Templates } from '../apps/host-agent/dist/templates/templates.js';
import {
  DEVICE_STATE_URI,
  GUEST_SOCKET,
  MEMORY_FILE,
  QEMU_PROGRAM,
  QMP_SOCKET,
  restoreArguments,
} from '../apps/host-agent/dist/vmm/qemu/command-line.js';
import { openQemuDriver } from '../apps/host-agent/dist/vmm/qemu/qemu-driver.js';
import { encodeFrame, FrameParser, frameType } from '../packages/contract/dist/index.js';
import { GUEST_GREETING } from '../packages/host-protocol/dist/index.js';
import { createLogger } from '../packages/runtime/dist/index.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    n: { type: 'string', default: '30' },
    image: { type: 'string', default: 'base' },
    cpus: { type: 'string', default: '1' },
    ram: { type: 'string', default: '512' },
    disk: { type: 'string', default: '2' },
    json: { type: 'boolean', default: false },
  },
});
const argv = positionals.length > 0 ? positionals : ['true'];
const home = process.env.FUSE_HOME || join(homedir(), '.fuse');
const dataDirectory = join(home, 'host');
await mkdir(dataDirectory, { recursive: true, mode: 0o700 });

const assets = await loadAssets(join(home, 'assets', 'manifest.json'));
const log = createLogger({ name: 'floor', level: 'warn' });
const driver = await openQemuDriver({ dataDirectory, kernelPath: assets.kernel.path, log });
const templates = new Templates({ directory: join(dataDirectory, 'templates'), driver, assets, log });
const image = imageNamed(assets, values.image);
const shape = { cpus: Number(values.cpus), ram_mb: Number(values.ram), storage_gb: Number(values.disk) };
const template = await templates.ensure(image, shape);

const work = await mkdtemp(join(dataDirectory, 'floor-'));
const phases = ['disk', 'spawned', 'qmp', 'running', 'greeting', 'command', 'again', 'cpu'];
/** @type {Record<string, number[]>} */
const samples = Object.fromEntries(phases.map((phase) => [phase, []]));
try {
  for (let round = 0; round < Number(values.n); round++) {
    const sample = await measure(join(work, String(round)));
    for (const phase of phases) samples[phase].push(sample[phase]);
  }
} finally {
  await rm(work, { recursive: true, force: true });
}
report();

/** @param {string} directory @returns {Promise<Record<string, number>>} */
async function measure(directory) {
  /** @type {Record<string, number>} */
  const at = {};
  await mkdir(directory);
  const from = performance.now();
  const mark = (/** @type {string} */ phase) => {
    at[phase] = performance.now() - from;
  };
  const writableDiskPath = join(directory, 'writable.img');
  await Promise.all([
    promisify(execFile)('cp', ['--reflink=auto', '--sparse=auto', template.diskPath, writableDiskPath]),
    link(template.snapshot.memoryPath, join(directory, MEMORY_FILE)),
  ]);
  mark('disk');
  const device = await open(template.snapshot.devicePath);
  const qemu = spawn(
    QEMU_PROGRAM,
    restoreArguments({
      accelerator: driver.accelerator,
      shape: { cpus: shape.cpus, memoryMiB: shape.ram_mb },
      memoryPath: MEMORY_FILE,
      sharedMemory: false,
      imagePath: image.path,
      writableDiskPath,
    }),
    { cwd: directory, stdio: ['ignore', 'inherit', 'inherit', device.fd], env: {} },
  );
  try {
    const gone = new Promise((_, reject) => qemu.once('exit', (code) => reject(new Error(`QEMU ended with ${code}`))));
    gone.catch(() => {});
    await Promise.race([new Promise((resolve) => qemu.once('spawn', resolve)), gone]);
    mark('spawned');
    await device.close();
    const watched = watchStatus(directory, mark);
    const socket = await connected(join(directory, GUEST_SOCKET));
    await greeted(socket);
    mark('greeting');
    const session = connectHttp2('http://guest', { createConnection: () => socket });
    await runCommand(session, 'floor-1');
    mark('command');
    at.cpu = await cpuMs(qemu.pid);
    const again = performance.now();
    await runCommand(session, 'floor-2');
    at.again = performance.now() - again;
    await watched;
    session.destroy();
    return at;
  } finally {
    const ended = new Promise((resolve) => qemu.once('exit', resolve));
    if (qemu.exitCode === null && qemu.kill('SIGKILL')) await ended;
    await rm(directory, { recursive: true, force: true });
  }
}

/** @param {string} directory @param {(phase: string) => void} mark */
async function watchStatus(directory, mark) {
  const socket = await connected(join(directory, QMP_SOCKET));
  let text = '';
  socket.setEncoding('utf8');
  const load = { execute: 'migrate-incoming', arguments: { uri: DEVICE_STATE_URI } };
  socket.write(`{"execute":"qmp_capabilities"}\n${JSON.stringify(load)}\n{"execute":"query-status"}\n`);
  for await (const chunk of socket) {
    text += chunk;
    if (text.includes('"QMP"')) mark('qmp');
    if (text.includes('"status": "running"')) break;
    if (text.includes('"status"')) {
      text = '';
      socket.write('{"execute":"query-status"}\n');
    }
  }
  mark('running');
  socket.destroy();
}

/** @param {string} path @returns {Promise<import('node:net').Socket>} */
async function connected(path) {
  for (;;) {
    const socket = connect(path);
    const error = await new Promise((resolve) => {
      socket.once('connect', () => resolve(undefined));
      socket.once('error', resolve);
    });
    if (error === undefined) return socket;
    if (error.code !== 'ENOENT' && error.code !== 'ECONNREFUSED') throw error;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** @param {import('node:net').Socket} socket @returns {Promise<void>} */
function greeted(socket) {
  return new Promise((resolve, reject) => {
    socket.once('close', () => reject(new Error('the guest channel closed')));
    socket.on('readable', function look() {
      const bytes = socket.read(GUEST_GREETING.length);
      if (bytes === null) return;
      socket.off('readable', look);
      resolve();
    });
  });
}

/** @param {import('node:http2').ClientHttp2Session} session @param {string} id */
async function runCommand(session, id) {
  const stream = session.request({ ':method': 'POST', ':path': `/v1/execs/${id}?offset=0` });
  stream.write(encodeFrame(frameType.spec, Buffer.from(JSON.stringify({ argv, stdin: false, cwd: '/' }))));
  const parser = new FrameParser();
  await new Promise((resolve, reject) => {
    stream.on('data', (chunk) => {
      for (const frame of parser.push(chunk)) if (frame.type === frameType.exit) resolve(undefined);
    });
    stream.once('error', reject);
    stream.once('close', () => reject(new Error('the command did not end')));
  });
  stream.end();
}

/** Nanosecond counts of all threads; /proc/<pid>/stat has hundredths of a second only. @param {number | undefined} pid */
async function cpuMs(pid) {
  let totalNs = 0;
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const schedstat = await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8');
    totalNs += Number(schedstat.split(' ')[0]);
  }
  return totalNs / 1e6;
}

function report() {
  const quantile = (/** @type {number[]} */ sorted, /** @type {number} */ q) =>
    sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)];
  const rows = phases.map((phase) => {
    const sorted = samples[phase].toSorted((one, other) => one - other);
    return {
      phase,
      p50: quantile(sorted, 0.5),
      p95: quantile(sorted, 0.95),
      p99: quantile(sorted, 0.99),
      min: sorted[0],
    };
  });
  if (values.json) {
    process.stdout.write(`${JSON.stringify({ n: Number(values.n), accelerator: driver.accelerator, shape, rows })}\n`);
    return;
  }
  const rig = `${cpus().length} x ${cpus()[0]?.model.trim()}, ${driver.accelerator}, ${shape.cpus} CPU, ${shape.ram_mb} MiB`;
  process.stdout.write(`floor: restore, then \`${argv.join(' ')}\`; N=${values.n}; ${rig}\n`);
  for (const row of rows) {
    const cells = [row.p50, row.p95, row.p99, row.min].map((ms) => ms.toFixed(1).padStart(8));
    process.stdout.write(`${row.phase.padEnd(10)}${cells.join('')} ms\n`);
  }
  process.stdout.write('              p50     p95     p99     min\n');
}
