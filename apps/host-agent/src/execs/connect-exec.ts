/** A connection to an exec: its log from there on comes out, stdin, signals and sizes go in. It ends behind the exit frame; cut, it has no exit frame. */
import type { Duplex } from 'node:stream';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { encodeFrame, type Frame, FrameParser, frameType, TerminalSize } from '@fuse/contract';
import { GuestSignal } from '@fuse/host-protocol';
import { type Logger, sleep } from '@fuse/runtime';
import type { z } from 'zod';
import type { Exec } from './exec.ts';
import { followLog } from './follow-log.ts';
import { LiveStdin } from './live-stdin.ts';
import { rejection } from './rejection.ts';
import type { Viewer } from './terminal.ts';

const MAX_JSON_PAYLOAD_BYTES = 4_096;
/** What was typed last arrives although its connection is gone, if the command reads it in this time. */
const LAST_STDIN_MS = 5_000;

export interface ExecConnection {
  exec: Exec;
  /** Of the log, where it begins. */
  offset: number;
  /** Of the terminal that it shows; without one, it only watches until it says one. */
  size: TerminalSize | undefined;
  log: Logger;
  /** Aborts when the caller is gone. */
  signal: AbortSignal;
  /** Runs what the guest is asked for. */
  asking: <T>(work: () => Promise<T>) => Promise<T>;
  /** Before it, what is thrown is an answer. */
  accept: () => Duplex;
}

export async function connectExec({ exec, offset, size, log, signal, asking, accept }: ExecConnection): Promise<void> {
  const { connected } = exec;
  const viewer = exec.running ? exec.terminal?.attach() : undefined;
  const stop = new AbortController();
  const stopped = rejection(AbortSignal.any([signal, connected, stop.signal]));
  const typing = new AbortController();
  try {
    if (size !== undefined) await viewer?.resize(size);
    const opened = await asking(() => exec.opened(offset, signal));
    signal.throwIfAborted();
    connected.throwIfAborted();
    const socket = accept();
    socket.write(encodeFrame(frameType.open, Buffer.from(JSON.stringify(opened))));
    const stdin = new LiveStdin(exec, exec.terminal === undefined ? opened.stdin_bytes : undefined, typing.signal);
    const said = listen(socket, { exec, stdin, viewer, asking, signal });
    const shown = show(exec, offset, socket, AbortSignal.any([signal, connected, stop.signal]));
    shown.catch(() => {});
    try {
      await Promise.race([shown, said, stopped.promise]);
    } finally {
      stop.abort(new Error('the connection is over'));
      if (exec.running && !connected.aborted) await settled(stdin);
      typing.abort(new Error('the connection is over'));
      await shown.catch(() => {});
    }
  } catch (error) {
    log.debug({ err: error, exec_id: exec.view().id }, 'connection to an exec cut');
    throw error;
  } finally {
    stopped.forget();
    await viewer?.leave();
  }
}

async function show(exec: Exec, offset: number, socket: Duplex, signal: AbortSignal): Promise<void> {
  const frames = Readable.from(followLog(exec, offset, { follow: true, heartbeat: true, signal }), {
    objectMode: false,
  });
  await pipeline(frames, socket, { signal, end: false });
}

interface Listening {
  exec: Exec;
  stdin: LiveStdin;
  viewer: Viewer | undefined;
  asking: ExecConnection['asking'];
  signal: AbortSignal;
}

/** Resolves when the caller has no more to say, which is that it leaves. */
async function listen(socket: Duplex, parts: Listening): Promise<void> {
  const parser = new FrameParser();
  for await (const chunk of socket.iterator({ destroyOnReturn: false }))
    for (const frame of parser.push(chunk as Uint8Array)) await hear(frame, parts); // no encoding is set
}

/** What does not parse is passed over, as frames of unknown types are. */
async function hear({ type, payload }: Frame, { exec, stdin, viewer, asking, signal }: Listening): Promise<void> {
  if (type === frameType.stdin) await stdin.write(payload);
  else if (type === frameType.stdinEnd) await stdin.end();
  else if (type === frameType.resize) {
    const size = jsonOf(payload, TerminalSize);
    // Not waited for: keys that follow are not held up by it.
    if (size !== undefined) void viewer?.resize(size);
  } else if (type === frameType.signal) {
    const order = jsonOf(payload, GuestSignal);
    if (order !== undefined && exec.running) await asking(() => exec.signal(order, signal));
  }
}

function jsonOf<T extends z.ZodType>(payload: Uint8Array, schema: T): z.output<T> | undefined {
  if (payload.length > MAX_JSON_PAYLOAD_BYTES) return undefined;
  try {
    return schema.parse(JSON.parse(Buffer.from(payload).toString('utf8')));
  } catch {
    return undefined;
  }
}

async function settled(stdin: LiveStdin): Promise<void> {
  const waited = new AbortController();
  await Promise.race([stdin.close(), sleep(LAST_STDIN_MS, waited.signal).catch(() => {})]);
  waited.abort();
}
