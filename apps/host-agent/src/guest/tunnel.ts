/** One connection to a TCP server in the guest, as one request: its body goes there, its answer comes from there. */
import type { ClientHttp2Stream } from 'node:http2';
import { answered, type Call, openStream, responseHead } from './call.ts';
import type { GuestChannel } from './channel.ts';
import type { GuestTunnel } from './guest.ts';
import { abandon, chunksOf } from './stream-chunks.ts';
import { drained } from './transfer.ts';

const CONNECT_DEADLINE_MS = 30_000;

export async function openTunnel(channel: GuestChannel, port: number, signal?: AbortSignal): Promise<GuestTunnel> {
  const call: Call = {
    method: 'POST',
    path: `/v1/tunnels?port=${port}`,
    what: 'a connection to a port',
    deadlineMs: CONNECT_DEADLINE_MS,
    signal,
  };
  return answered(channel, call, async (inner) => {
    const session = await channel.session(inner);
    const stream = openStream(session, call, inner);
    try {
      await responseHead(stream, call);
      return tunnelOver(channel, stream, call);
    } catch (error) {
      abandon(stream);
      throw await channel.meaning(call.what, error);
    }
  });
}

function tunnelOver(channel: GuestChannel, stream: ClientHttp2Stream, call: Call): GuestTunnel {
  return {
    bytes: bytesOf(channel, stream, call),
    async write(chunk) {
      if (!stream.writable) return false;
      if (!stream.write(chunk)) await drained(stream);
      return stream.writable;
    },
    end() {
      if (stream.writable) stream.end();
    },
    abort: () => abandon(stream),
  };
}

async function* bytesOf(channel: GuestChannel, stream: ClientHttp2Stream, call: Call): AsyncGenerator<Buffer> {
  try {
    yield* chunksOf(stream, call.what);
  } catch (error) {
    call.signal?.throwIfAborted();
    throw await channel.meaning(call.what, error);
  }
}
