/** One connection to a TCP server in the guest, as one request: its body goes there, frames in its answer are what comes from there. */
import type { ClientHttp2Stream } from 'node:http2';
import { AppError, type Frame, FrameError, FrameParser, frameType } from '@fuse/contract';
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
  const frames = framesOf(channel, stream, call);
  return {
    async *bytes() {
      for (let next = await frames.next(); !next.done; next = await frames.next()) {
        if (next.value.type === frameType.stdinEnd) return;
        yield next.value.payload;
      }
      throw new AppError('unavailable', 'the guest ended a connection without telling the end of its server');
    },
    async closed() {
      const next = await frames.next();
      if (!next.done) throw new AppError('unavailable', 'the guest sent more of a connection than its end');
    },
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

/** Frames of the server's bytes, and one of their end. */
async function* framesOf(channel: GuestChannel, stream: ClientHttp2Stream, call: Call): AsyncGenerator<Frame, void> {
  const parser = new FrameParser();
  try {
    for await (const chunk of chunksOf(stream, call.what))
      for (const frame of parser.push(chunk)) {
        if (frame.type !== frameType.stdout && frame.type !== frameType.stdinEnd)
          throw new AppError('unavailable', `the guest sent a frame of type ${frame.type} of a connection`);
        yield frame;
      }
    if (parser.pendingBytes > 0) throw new AppError('unavailable', 'the guest cut a frame of a connection');
  } catch (error) {
    abandon(stream);
    call.signal?.throwIfAborted();
    if (error instanceof FrameError) throw new AppError('unavailable', error.message, { cause: error });
    throw await channel.meaning(call.what, error);
  }
}
