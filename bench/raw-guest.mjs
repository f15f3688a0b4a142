/**
 * A guest without the product around it: QEMU on a template, and the guest channel. What benchmarks measure against.
 * Needs what `npm run setup` has made.
 */
import { execFile, spawn } from 'node:child_process';
import { link, mkdir, open, rm } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { JsStream } from '../apps/host-agent/dist/guest/js-stream.js';
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

/** @typedef {{image: string, cpus: number, ramMiB: number, diskGiB: number}} Machine */

/** The template of this image and shape, made when there is none. @param {Machine} machine */
export async function templateOf({ image: imageName, cpus, ramMiB, diskGiB }) {
  const home = process.env.FUSE_HOME || join(homedir(), '.fuse');
  const dataDirectory = join(home, 'host');
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  const assets = await loadAssets(join(home, 'assets', 'manifest.json'));
  const log = createLogger({ name: 'floor', level: 'warn' });
  const driver = await openQemuDriver({ dataDirectory, kernelPath: assets.kernel.path, log });
  const templates = new Templates({ directory: join(dataDirectory, 'templates'), driver, assets, log });
  const image = imageNamed(assets, imageName);
  const template = await templates.ensure(image, { cpus, ram_mb: ramMiB, storage_gb: diskGiB });
  return { dataDirectory, driver, image, template, shape: { cpus, memoryMiB: ramMiB } };
}

/**
 * Restores it in `directory`, which is made, and removed by the end. `mark` is told of each phase as it is reached.
 * @param {Awaited<ReturnType<typeof templateOf>>} source @param {string} directory @param {(phase: string) => void} [mark]
 */
export async function startRawGuest({ driver, image, template, shape }, directory, mark = () => {}) {
  await mkdir(directory);
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
      shape,
      memoryPath: MEMORY_FILE,
      sharedMemory: false,
      imagePath: image.path,
      writableDiskPath,
      runDirectory: '',
    }),
    { cwd: directory, stdio: ['ignore', 'inherit', 'inherit', device.fd], env: {} },
  );
  const end = async () => {
    const ended = new Promise((resolve) => qemu.once('exit', resolve));
    if (qemu.exitCode === null && qemu.kill('SIGKILL')) await ended;
    await rm(directory, { recursive: true, force: true });
  };
  try {
    const gone = new Promise((_, reject) => qemu.once('exit', (code) => reject(new Error(`QEMU ended with ${code}`))));
    gone.catch(() => {});
    await Promise.race([new Promise((resolve) => qemu.once('spawn', resolve)), gone]);
    mark('spawned');
    await device.close();
    const running = watchStatus(directory, mark);
    const socket = await connected(join(directory, GUEST_SOCKET));
    await greeted(socket);
    mark('greeting');
    // Windows and frames as the product's channel has them.
    const session = connectHttp2('http://guest', {
      createConnection: () => new JsStream(socket),
      settings: { initialWindowSize: 1_048_576, maxFrameSize: 65_536, enablePush: false },
    });
    session.once('connect', () => session.setLocalWindowSize(16_777_216));
    return { pid: qemu.pid, session, running, end };
  } catch (error) {
    await end();
    throw error;
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

/** @param {import('node:http2').ClientHttp2Session} session @param {string} id @param {string[]} argv */
export async function runCommand(session, id, argv) {
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
