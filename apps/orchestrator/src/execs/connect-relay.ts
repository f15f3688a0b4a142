/** Between a client that is connected and its exec: frames both ways, each direction as slow as its slower end. */
import {
  AppError,
  type ExecExit,
  encodeFrame,
  type Frame,
  FrameError,
  FrameParser,
  frameType,
  SignalRequest,
  TerminalSize,
} from '@fuse/contract';
import { GuestExecExit } from '@fuse/host-protocol';
import { isClientGone } from '../http/error-responses.ts';
import type { Peer } from '../http/peer.ts';
import type { ExecLink } from './connect-link.ts';
import { toExecExit } from './exec-view.ts';
import { jsonOf } from './host-connection.ts';

export interface RelayRules {
  /** Types that the client may send; others are passed over. */
  takes: ReadonlySet<number>;
  /** As the client gets it; undefined: not at all. */
  shown(frame: Frame): Uint8Array | undefined;
}

export const execFrames: ReadonlySet<number> = new Set([
  frameType.stdin,
  frameType.stdinEnd,
  frameType.resize,
  frameType.signal,
]);

/** What the client sends, as frames. Throws FrameError for what is none. */
export async function* clientFrames(peer: Peer): AsyncGenerator<Frame> {
  const parser = new FrameParser();
  for await (const bytes of peer.received()) yield* parser.push(bytes);
}

/** Resolves with `exited` once the exit was sent, with `left` when the client has ended. Rejects with what ended it otherwise; the link is left to the caller. */
export async function relay(
  peer: Peer,
  received: AsyncGenerator<Frame>,
  link: ExecLink,
  rules: RelayRules,
): Promise<'exited' | 'left'> {
  const up = async () => {
    for await (const frame of received) if (rules.takes.has(frame.type)) await pass(link, frame);
    return 'left' as const;
  };
  const down = async () => {
    for await (const frame of link.frames()) {
      const bytes = rules.shown(frame);
      if (bytes !== undefined) await peer.send(bytes);
    }
    return 'exited' as const;
  };
  try {
    return await Promise.race([up(), down()]);
  } catch (error) {
    if (isClientGone(error)) return 'left';
    throw error;
  }
}

async function pass(link: ExecLink, frame: Frame): Promise<void> {
  switch (frame.type) {
    case frameType.stdin:
      // An empty one is legal and says nothing.
      return frame.payload.length === 0 ? undefined : link.sendStdin(frame.payload);
    case frameType.stdinEnd:
      return link.endStdin();
    case frameType.resize: {
      // 0x0 is what a terminal says that does not know its size.
      const size = TerminalSize.safeParse(jsonOrUndefined(frame));
      return size.success ? link.resize(size.data) : undefined;
    }
    case frameType.signal: {
      const request = SignalRequest.safeParse(jsonOrUndefined(frame));
      if (!request.success) throw new FrameError(`signal frame: ${request.error.issues[0]?.message ?? 'unreadable'}`);
      const { signal = 'SIGTERM', tree } = request.data;
      return link.signal(tree === undefined ? { signal } : { signal, tree });
    }
  }
}

export function jsonOrUndefined(frame: Frame): unknown {
  try {
    return jsonOf(frame);
  } catch {
    return undefined;
  }
}

/** With the exit as the API has it; everything else as it is. */
export function asExecFrame(frame: Frame): Uint8Array {
  return frame.type === frameType.exit
    ? jsonFrame(frameType.exit, exitOf(frame))
    : encodeFrame(frame.type, frame.payload);
}

export const jsonFrame = (type: number, value: unknown): Uint8Array =>
  encodeFrame(type, Buffer.from(JSON.stringify(value)));

export function exitOf(frame: Frame): ExecExit {
  const exit = GuestExecExit.safeParse(jsonOrUndefined(frame));
  if (!exit.success)
    throw new AppError('internal', 'the host sent an exit that the protocol does not know', { cause: exit.error });
  return toExecExit(exit.data);
}
