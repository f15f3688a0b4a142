/** One `fuse-exec/1` connection to a host: opened, and read as frames. */
import type { Duplex } from 'node:stream';
import { AppError, ExecOpened, type Frame, FrameParser, frameType, HEARTBEAT_MS } from '@fuse/contract';
import type { HostClient } from '../hosts/host-client.ts';
import type { ConnectOptions } from '../hosts/host-execs.ts';

/** A host that is well says something at least every HEARTBEAT_MS. */
const SILENT_MS = 3 * HEARTBEAT_MS;

export interface HostConnection {
  socket: Duplex;
  opened: ExecOpened;
  /** What follows the `open` frame; ends when the connection does, however that is. */
  frames: AsyncGenerator<Frame>;
}

export class ConnectionCut extends Error {
  override readonly name = 'ConnectionCut';
}

/** Rejects with ConnectionCut when it breaks before the host has opened it. */
export async function connectToHost(
  client: HostClient,
  vmId: string,
  execId: string,
  options: ConnectOptions & { signal: AbortSignal },
): Promise<HostConnection> {
  const { socket, head } = await client.execs.connect(vmId, execId, options);
  const frames = readFrames(socket, head);
  const first = await frames.next();
  if (first.done) throw new ConnectionCut('the host cut the connection');
  if (first.value.type !== frameType.open) {
    socket.destroy();
    throw unreadable(new Error(`its first frame is of type ${first.value.type}`));
  }
  try {
    return { socket, opened: ExecOpened.parse(jsonOf(first.value)), frames };
  } catch (error) {
    socket.destroy();
    throw unreadable(error);
  }
}

async function* readFrames(socket: Duplex, head: Uint8Array): AsyncGenerator<Frame> {
  const parser = new FrameParser();
  const chunks = socket.iterator({ destroyOnReturn: false })[Symbol.asyncIterator]();
  let chunk: Uint8Array = head;
  for (;;) {
    try {
      yield* parser.push(chunk);
    } catch (error) {
      socket.destroy();
      throw unreadable(error);
    }
    const silent = setTimeout(() => socket.destroy(), SILENT_MS);
    const next = await chunks.next().catch(() => undefined); // cut
    clearTimeout(silent);
    if (next === undefined || next.done === true) return;
    chunk = next.value as Uint8Array; // the socket has no encoding
  }
}

export const jsonOf = ({ payload }: Frame): unknown => JSON.parse(Buffer.from(payload).toString('utf8'));

const unreadable = (cause: unknown) =>
  new AppError('internal', 'the host sent frames that the protocol does not know', { cause });
