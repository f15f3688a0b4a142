import { TUNNEL_END } from '@fuse/contract';
import { FuseError } from './errors.ts';
import { openSocket } from './open-socket.ts';
import { withRetries } from './retry.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';
import type { MessageSocket } from './web-sockets.ts';

const PIECE_BYTES = 262_144;

export interface ConnectPortOptions extends CallOptions {
  /** Where somebody else asks for tickets. */
  ticket?: () => Promise<string>;
}

/** One TCP connection to a server on the guest's loopback. Each direction ends by itself; closing `writable` is a half-close. */
export interface PortConnection {
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<Uint8Array>;
  /** Both ways, at once. */
  close(): void;
}

/** Rejects with FuseApiError `details.reason: connection_refused` when nothing listens there. */
export async function connectPort(
  transport: Transport,
  environmentId: string,
  port: number,
  { ticket, signal }: ConnectPortOptions,
): Promise<PortConnection> {
  const call = {
    environmentId,
    path: `/ports/${port}/connect`,
    query: {},
    ticket: { for: 'port', port } as const,
    takeTicket: ticket,
  };
  const options = signal === undefined ? {} : { signal };
  // Nothing was said to the server in the guest yet.
  const policy = { repeat: 'freely', retries: transport.config.retries, random: transport.config.random } as const;
  const socket = await withRetries({ ...policy, signal }, () => openSocket(transport, call, options));
  return tunnelOver(socket);
}

function tunnelOver(socket: MessageSocket): PortConnection {
  const reader = socket.readable.getReader();
  const writer = socket.writable.getWriter();
  writer.closed.catch(() => {}); // told by what is written
  let open = 2;
  const oneEnded = () => {
    open -= 1;
    if (open === 0) socket.close();
  };
  const readable = new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        const { done, value } = await reader.read();
        if (!done && typeof value !== 'string') return controller.enqueue(value);
        if (!done && value !== TUNNEL_END) throw new FuseError('a message that is not of a tunnel');
        controller.close();
        oneEnded();
      },
      cancel: () => socket.close(),
    },
    new ByteLengthQueuingStrategy({ highWaterMark: 0 }),
  );
  const writable = new WritableStream<Uint8Array>({
    write: async (bytes) => {
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) await writer.write(bytes.subarray(at, at + PIECE_BYTES));
    },
    close: async () => {
      await writer.write(TUNNEL_END);
      oneEnded();
    },
    abort: () => socket.close(),
  });
  return { readable, writable, close: () => socket.close() };
}
