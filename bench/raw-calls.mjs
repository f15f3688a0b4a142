/** What bench/inside.mjs does over the raw guest channel: the protocol of packages/host-protocol/src/guest.ts, with nothing around it. */
import { PassThrough } from 'node:stream';
import { encodeFrame, FRAME_HEADER_BYTES, FrameParser, frameType } from '../packages/contract/dist/index.js';

/** @typedef {import('node:http2').ClientHttp2Session} Session */
/** @typedef {import('node:http2').ClientHttp2Stream} Stream */

const ACK_EVERY_BYTES = 128 * 1024;

/** @param {Session} session @param {string} method @param {string} path @param {boolean} [hasBody] */
export function request(session, method, path, hasBody = false) {
  const stream = session.request({ ':method': method, ':path': path }, { endStream: !hasBody });
  stream.on('error', () => {}); // it shows to whoever waits
  return stream;
}

/** @param {Stream} stream */
export async function responded(stream) {
  const status = await new Promise((resolve, reject) => {
    stream.once('response', (head) => resolve(head[':status']));
    stream.once('close', () => reject(new Error('the guest answered nothing')));
  });
  if (status >= 300) throw new Error(`the guest answered ${status}: ${await text(stream)}`);
}

/** @param {Stream} stream */
async function text(stream) {
  let all = '';
  for await (const chunk of stream) all += chunk;
  return all;
}

let execs = 0;
export const freshId = () => `bench-${++execs}`;

/**
 * Starts it and hands every stdout payload to `onStdout`; resolves at its exit.
 * @param {Session} session @param {object} spec @param {{id?: string, onStdout?: (bytes: Uint8Array) => void, onStarted?: () => void}} [options]
 */
export async function exec(session, spec, { id = freshId(), onStdout = () => {}, onStarted = () => {} } = {}) {
  const stream = request(session, 'POST', `/v1/execs/${id}?offset=0`, true);
  stream.write(encodeFrame(frameType.spec, Buffer.from(JSON.stringify({ stdin: false, cwd: '/', ...spec }))));
  await responded(stream);
  onStarted();
  const parser = new FrameParser();
  let offset = 0;
  let acked = 0;
  for await (const chunk of stream) {
    for (const { type, payload } of parser.push(chunk)) {
      offset += FRAME_HEADER_BYTES + payload.length;
      if (type === frameType.stdout) onStdout(payload);
      if (type !== frameType.exit) continue;
      stream.end();
      return;
    }
    if (offset - acked < ACK_EVERY_BYTES) continue;
    acked = offset;
    const ack = Buffer.alloc(8);
    ack.writeBigUInt64BE(BigInt(offset));
    stream.write(encodeFrame(frameType.ack, ack));
  }
  throw new Error('the command did not end');
}

/** @param {Stream} stream @param {number} total @param {Uint8Array} piece */
export async function send(stream, total, piece) {
  for (let sent = 0; sent < total; sent += piece.length)
    if (!stream.write(piece)) await new Promise((resolve) => stream.once('drain', resolve));
  stream.end();
}

/** @param {AsyncIterable<Uint8Array>} stream */
export async function count(stream) {
  let total = 0;
  for await (const chunk of stream) total += chunk.length;
  return total;
}

/** Resolves with a Duplex of a connection to the port. @param {Session} session @param {number} port */
export async function tunnel(session, port) {
  const stream = request(session, 'POST', `/v1/tunnels?port=${port}`, true);
  await responded(stream);
  const parser = new FrameParser();
  const received = new PassThrough();
  stream.on('data', (chunk) => {
    for (const { type, payload } of parser.push(chunk)) {
      if (type === frameType.stdout) received.write(payload);
      else if (type === frameType.stdinEnd) received.end();
    }
  });
  stream.once('close', () => received.end());
  return { received, write: (/** @type {Uint8Array} */ bytes) => stream.write(bytes), close: () => stream.close() };
}
