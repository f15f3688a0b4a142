/** One WebSocket to a terminal session, from its `open` frame on. */
import { ExecOpened, type Frame, FrameParser, frameType, type TerminalSize } from '@fuse/contract';
import { FuseConnectionError, FuseError } from './errors.ts';
import { parsePayload } from './exec-log.ts';
import { openSocket } from './open-socket.ts';
import { within } from './sleep.ts';
import type { Transport } from './transport.ts';
import type { MessageSocket } from './web-sockets.ts';

export interface TerminalRequest {
  environmentId: string;
  session: string;
  size: TerminalSize;
  cmd: readonly string[] | undefined;
  user: string | undefined;
  cwd: string | undefined;
  scrollbackBytes: number;
  takeTicket: (() => Promise<string>) | undefined;
}

export interface TerminalConnection {
  opened: ExecOpened;
  /** Those that come after `open`. */
  frames: AsyncGenerator<Frame, void>;
  writer: WritableStreamDefaultWriter<Uint8Array | string>;
  close(): void;
}

export async function connectTerminal(
  transport: Transport,
  request: TerminalRequest,
  signal: AbortSignal,
  stallMs: number,
): Promise<TerminalConnection> {
  const { environmentId, session, size, cmd, user, cwd, scrollbackBytes, takeTicket } = request;
  const socket = await openSocket(
    transport,
    {
      environmentId,
      path: '/attach',
      query: { tty: '1', ...size, cmd: cmd ?? [], session, scrollback: String(scrollbackBytes), user, cwd },
      ticket: { for: 'attach', session },
      takeTicket,
    },
    { signal },
  );
  const writer = socket.writable.getWriter();
  writer.closed.catch(() => {}); // told by what is read
  const close = () => socket.close();
  signal.addEventListener('abort', close, { once: true });
  if (signal.aborted) close();
  try {
    const frames = framesOf(socket, stallMs);
    const first = await frames.next();
    if (first.done) throw new FuseConnectionError('the connection ended before it was open', { sent: true });
    if (first.value.type !== frameType.open) throw new FuseError('a terminal that does not begin with `open`');
    return { opened: parsePayload(ExecOpened, first.value.payload), frames, writer, close };
  } catch (error) {
    close();
    throw error;
  }
}

async function* framesOf(socket: MessageSocket, stallMs: number): AsyncGenerator<Frame, void> {
  const parser = new FrameParser();
  const reader = socket.readable.getReader();
  for (;;) {
    const { done, value } = await within(stallMs, reader.read());
    if (done) return;
    if (typeof value === 'string') throw new FuseError('a text message on a terminal');
    yield* parser.push(value);
  }
}
