/** One conversation with an exec: a request whose body and response are frame streams (contract/frames.ts). */
import type { ClientHttp2Stream } from 'node:http2';
import { encodeFrame, frameType } from '@fuse/contract';
import type { ExecSpec } from '@fuse/host-protocol';
import { answered, type Call, callJson, openStream, responseHead } from './call.ts';
import type { GuestChannel } from './channel.ts';
import type { ExecConversation } from './guest.ts';
import { abandon, chunksOf } from './stream-chunks.ts';

const START_DEADLINE_MS = 60_000;
const ACK_DEADLINE_MS = 30_000;
const STDIN_FRAME_BYTES = 65_536;
const empty = new Uint8Array();

export async function openExec(
  channel: GuestChannel,
  id: string,
  options: { spec?: ExecSpec; offset?: number },
  signal?: AbortSignal,
): Promise<ExecConversation> {
  const offset = options.offset ?? 0;
  const path = `/v1/execs/${encodeURIComponent(id)}`;
  const call: Call = {
    method: 'POST',
    path: `${path}?offset=${offset}`,
    what: 'an exec',
    deadlineMs: START_DEADLINE_MS,
    signal,
  };
  return answered(channel, call, async (inner) => {
    const session = await channel.session(inner);
    const stream = openStream(session, call, inner);
    try {
      // Without a spec the guest still looks at the first frame when it does not know the exec; this one says nothing new.
      stream.write(options.spec === undefined ? ackFrame(offset) : jsonFrame(frameType.spec, options.spec));
      await responseHead(stream, call);
    } catch (error) {
      abandon(stream);
      throw await channel.meaning(call.what, error);
    }
    return conversationOver(channel, stream, path);
  });
}

function conversationOver(channel: GuestChannel, stream: ClientHttp2Stream, path: string): ExecConversation {
  let wroteStdin = false;
  let ackInStream: number | undefined;
  const send = (frame: Uint8Array): Promise<void> =>
    new Promise((resolve, reject) => {
      stream.write(frame, (error) => (error ? reject(error) : resolve()));
    });
  /** Failures of these show in `frames`. */
  const sendUnawaited = (frame: Uint8Array): void => {
    if (stream.writable) send(frame).catch(() => {});
  };
  const sendAck = (offset: number): void => {
    const call = { method: 'POST', path: `${path}/ack?offset=${offset}`, what: 'an ack' } as const;
    callJson(channel, { ...call, deadlineMs: ACK_DEADLINE_MS }).catch(() => {});
  };
  /** An ack that the guest may not have read before the stream was over is sent once more: it keeps what no ack covers. */
  const finish = (): void => {
    abandon(stream);
    if (ackInStream !== undefined) sendAck(ackInStream);
    ackInStream = undefined;
  };
  return {
    frames: framesOf(channel, stream, finish),
    ack(offset) {
      if (wroteStdin || !stream.writable) return sendAck(offset);
      ackInStream = offset;
      sendUnawaited(ackFrame(offset));
    },
    async writeStdin(chunk) {
      wroteStdin = true;
      for (let at = 0; at < chunk.length; at += STDIN_FRAME_BYTES)
        await send(encodeFrame(frameType.stdin, chunk.subarray(at, at + STDIN_FRAME_BYTES)));
    },
    endStdin: () => sendUnawaited(encodeFrame(frameType.stdinEnd, empty)),
    signal: (name) => sendUnawaited(jsonFrame(frameType.signal, { signal: name })),
    close: finish,
  };
}

/** The guest ends the response after the exit frame and resets it in every other case. */
async function* framesOf(
  channel: GuestChannel,
  stream: ClientHttp2Stream,
  finish: () => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* chunksOf(stream, 'an exec');
  } catch (error) {
    throw await channel.meaning('an exec', error);
  } finally {
    finish();
  }
}

function ackFrame(offset: number): Uint8Array {
  const payload = new Uint8Array(8);
  new DataView(payload.buffer).setBigUint64(0, BigInt(offset));
  return encodeFrame(frameType.ack, payload);
}

function jsonFrame(type: number, value: unknown): Uint8Array {
  return encodeFrame(type, new TextEncoder().encode(JSON.stringify(value)));
}
