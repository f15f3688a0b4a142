/** The connections of a test host that stop being HTTP: `fuse-exec/1` to a command, `fuse-tunnel-frames/1` to a port of this machine. */
import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import {
  AppError,
  type ExecOpened,
  encodeFrame,
  FrameParser,
  frameType,
  SignalRequest,
  TerminalSize,
} from '@fuse/contract';
import { EXEC_PROTOCOL, HOST_TUNNEL_PROTOCOL, tunnelBytes, tunnelEnd, tunnelFrames } from '@fuse/host-protocol';
import type { TestHostExec } from './test-host-exec.ts';

const switchTo = (protocol: string) =>
  `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`;
const json = (type: number, value: unknown) => Buffer.from(encodeFrame(type, Buffer.from(JSON.stringify(value))));

export interface LogOrder {
  query: URLSearchParams;
  heartbeatMs: number;
}

/** Where a request for a log begins. Throws when that is beyond its end. */
export function logStart(exec: TestHostExec, query: URLSearchParams): number {
  if (query.has('tail')) return exec.log.tail(Number(query.get('tail')));
  const offset = Number(query.get('offset') ?? 0);
  if (offset > exec.log.end)
    throw new AppError('invalid_argument', `offset: is beyond the ${exec.log.end} bytes that the log has`, {
      details: { field: 'offset' },
    });
  return offset;
}

/**
 * Writes the log from `offset` on, with gaps and heartbeats, as fast as it is taken. True at the exec's end, false when it was lost or the
 * sink is gone.
 */
export async function pumpLog(
  exec: TestHostExec,
  sink: Duplex | NodeJS.WritableStream,
  {
    offset,
    follow,
    heartbeatMs,
    isGone,
  }: { offset: number; follow: boolean; heartbeatMs: number; isGone: () => boolean },
): Promise<boolean> {
  const follower = exec.log.follow(offset);
  let at = offset;
  let quietSince = Date.now();
  const write = async (bytes: Uint8Array) => {
    quietSince = Date.now();
    if (!sink.write(bytes)) await room(sink);
  };
  try {
    while (!isGone()) {
      const ended = exec.status.state !== 'running';
      const { gap, bytes, next } = exec.log.read(at);
      if (gap !== undefined) await write(json(frameType.gap, gap));
      if (bytes.length > 0) await write(bytes);
      at = next;
      exec.log.moved(follower, at);
      if (gap !== undefined || bytes.length > 0) continue;
      if (!follow) return true;
      if (ended && exec.log.end === at) return exec.status.state === 'exited';
      if (Date.now() - quietSince >= heartbeatMs) await write(encodeFrame(frameType.heartbeat, new Uint8Array()));
      await exec.changed(Math.min(100, heartbeatMs));
    }
    return false;
  } finally {
    exec.log.leave(follower);
  }
}

async function room(sink: NodeJS.WritableStream): Promise<void> {
  const settled = new AbortController();
  const { signal } = settled;
  const events = [once(sink, 'drain', { signal }), once(sink, 'close', { signal })];
  await Promise.race(events).catch(() => {}); // its error: it is gone
  settled.abort();
  await Promise.allSettled(events);
}

/** Both ways until the exec's end or the connection's. */
export async function connectExec(
  exec: TestHostExec,
  socket: Duplex,
  head: Buffer,
  { query, heartbeatMs }: LogOrder,
): Promise<void> {
  const offset = logStart(exec, query);
  const viewer = {};
  const asked = TerminalSize.safeParse({ rows: Number(query.get('rows')), cols: Number(query.get('cols')) });
  if (asked.success) exec.viewers.set(viewer, asked.data);
  let isGone = false;
  socket.once('close', () => {
    isGone = true;
    exec.viewers.delete(viewer);
  });
  socket.write(switchTo(EXEC_PROTOCOL));
  const { stdin_bytes, closed } = exec.stdinState;
  const opened: ExecOpened = {
    exec_id: exec.id,
    offset,
    stdin_bytes,
    stdin_closed: closed,
    ...(exec.size === undefined ? {} : { tty: exec.size }),
  };
  socket.write(json(frameType.open, opened));
  const reading = takeFrames(exec, socket, head, (size) => exec.viewers.set(viewer, size)).catch(() =>
    socket.destroy(),
  );
  const isWhole = await pumpLog(exec, socket, { offset, follow: true, heartbeatMs, isGone: () => isGone });
  if (isWhole) socket.end();
  else socket.destroy();
  await reading;
}

async function takeFrames(
  exec: TestHostExec,
  socket: Duplex,
  head: Buffer,
  resize: (size: TerminalSize) => void,
): Promise<void> {
  const parser = new FrameParser();
  const take = async (bytes: Uint8Array) => {
    for (const { type, payload } of parser.push(bytes)) {
      if (type === frameType.stdin)
        await exec.writeStdin(one(payload), { end: false }).catch(() => {}); // it takes none
      else if (type === frameType.stdinEnd) await exec.writeStdin(one(), { end: true }).catch(() => {});
      else if (type === frameType.resize) resize(TerminalSize.parse(parse(payload)));
      else if (type === frameType.signal) {
        const { signal = 'SIGTERM' } = SignalRequest.parse(parse(payload));
        exec.signal({ signal });
      }
    }
  };
  await take(head);
  for await (const bytes of socket) await take(bytes as Buffer);
}

const parse = (payload: Uint8Array): unknown => JSON.parse(Buffer.from(payload).toString('utf8'));
async function* one(...pieces: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* pieces;
}

/** The guest's loopback is this machine's. */
export async function tunnel(port: number, socket: Duplex, head: Buffer): Promise<void> {
  const server = connectTcp({ port, host: '127.0.0.1', allowHalfOpen: true });
  const failed = new AppError('conflict', `nothing listens on port ${port}`, {
    details: { reason: 'connection_refused' },
  });
  await Promise.race([once(server, 'connect'), delay(5_000).then(() => Promise.reject(failed))]).catch(() => {
    server.destroy();
    throw failed;
  });
  socket.write(switchTo(HOST_TUNNEL_PROTOCOL));
  if (head.length > 0) socket.unshift(head);
  socket.on('error', () => {}); // 'close' follows
  socket.once('close', () => server.destroy());
  const up = async () => {
    for await (const bytes of tunnelBytes(socket.iterator({ destroyOnReturn: false })))
      if (!server.write(bytes)) await room(server);
    server.end();
    socket.resume();
  };
  const down = async () => {
    for await (const bytes of server.iterator({ destroyOnReturn: false }))
      for (const frame of tunnelFrames(bytes as Buffer)) if (!socket.write(frame)) await room(socket);
    socket.end(tunnelEnd());
  };
  up().catch(() => server.resetAndDestroy());
  down().catch(() => socket.end(() => socket.destroy())); // a cut that looks like an end, as a reset behind unread bytes does
}
