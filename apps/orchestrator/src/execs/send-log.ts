/**
 * A followed log as an HTTP answer. A client that does not read stops the reading of the log, so nothing piles up here. One whose end is not known is cut, in the form
 * `ndjson` after a line that says so; never ended as if it were whole.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { type Encoding, type ExecLogLine, encodeFrame, frameType, HEARTBEAT_MS, type LogStream } from '@fuse/contract';
import type { FastifyReply } from 'fastify';
import { toExecExit } from './exec-view.ts';
import type { FollowedLog, LogEvent } from './follow-log.ts';
import { LogLines } from './log-lines.ts';

const TCP_PROBE_MS = 30_000;

export interface LogAnswer {
  execId: string;
  log: FollowedLog;
  form: LogStream;
  encoding: Encoding;
  /** Aborted when the client is gone or the server stops. */
  signal: AbortSignal;
  heartbeatMs?: number;
}

interface Form {
  contentType: string;
  /** Nothing where the form has none. */
  heartbeat: Uint8Array | string | undefined;
  encode(event: LogEvent): (Uint8Array | string)[];
  /** With `lost` this form has no way to say so. */
  cutsWhenLost: boolean;
}

/** From here on the answer is this stream's: look things up and refuse before. */
export async function sendLog(
  reply: FastifyReply,
  { execId, log, form: name, encoding, signal, heartbeatMs = HEARTBEAT_MS }: LogAnswer,
): Promise<void> {
  const form = formOf(name, encoding, log.offset);
  reply.hijack();
  const response = reply.raw;
  for (const [header, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) response.setHeader(header, value);
  response.writeHead(200, {
    'Content-Type': form.contentType,
    'X-Content-Type-Options': 'nosniff',
    'Cache-Control': 'no-store',
    'X-Accel-Buffering': 'no',
    'Fuse-Exec-Id': execId,
    'Fuse-Log-Offset': String(log.offset),
    ...(name === 'text' ? { Trailer: 'Fuse-Exit-Code, Fuse-Log-Gap-Bytes' } : {}),
  });
  response.flushHeaders();
  response.socket?.setNoDelay(true);
  response.socket?.setKeepAlive(true, TCP_PROBE_MS);
  response.on('error', () => {}); // 'close' follows
  let missing = 0;
  let quietSince = performance.now();
  const write = async (piece: Uint8Array | string) => {
    quietSince = performance.now();
    if (!response.write(piece)) await once(response, 'drain', { signal });
  };
  const heartbeats = setInterval(() => {
    const isQuiet = performance.now() - quietSince >= (heartbeatMs * 2) / 3 && !response.writableNeedDrain;
    if (isQuiet && form.heartbeat !== undefined) void write(form.heartbeat).catch(() => {}); // the client is gone
  }, heartbeatMs / 3);
  try {
    for await (const event of log.events) {
      for (const piece of form.encode(event)) await write(piece);
      if (event.kind === 'gap') missing += event.to - event.from;
      if (event.kind === 'lost' && form.cutsWhenLost) return cut(response);
      if (event.kind === 'exit' && name === 'text')
        response.addTrailers({ 'Fuse-Exit-Code': String(toExecExit(event.exit).exit_code), ...gapTrailer(missing) });
    }
    response.end();
  } catch (error) {
    cut(response);
    if (!signal.aborted) reply.log.warn({ err: error, exec_id: execId }, 'a log was cut');
  } finally {
    clearInterval(heartbeats);
  }
}

const gapTrailer = (missing: number) => (missing === 0 ? {} : { 'Fuse-Log-Gap-Bytes': String(missing) });

/** What was written still goes out, and then no end: HTTP tells the client that the answer is not whole. */
function cut(response: ServerResponse): void {
  if (response.socket === null) response.destroy();
  else response.socket.destroySoon();
}

const line = (value: ExecLogLine): string => `${JSON.stringify(value)}\n`;

function formOf(name: LogStream, encoding: Encoding, offset: number): Form {
  switch (name) {
    case 'ndjson': {
      const lines = new LogLines(encoding, offset > 0);
      return {
        contentType: 'application/x-ndjson',
        heartbeat: line({ heartbeat: true }),
        encode: (event) => lines.push(event).map(line),
        cutsWhenLost: false,
      };
    }
    case 'text':
      return {
        contentType: 'text/plain',
        heartbeat: undefined,
        encode: (event) => (event.kind === 'data' ? [event.payload] : []),
        cutsWhenLost: true,
      };
    case 'frames':
      return {
        contentType: 'application/octet-stream',
        heartbeat: encodeFrame(frameType.heartbeat, new Uint8Array()),
        encode: framesOf,
        cutsWhenLost: true,
      };
  }
}

function framesOf(event: LogEvent): Uint8Array[] {
  switch (event.kind) {
    case 'data':
      return [encodeFrame(frameType[event.stream], event.payload)];
    case 'gap':
      return [encodeFrame(frameType.gap, Buffer.from(JSON.stringify({ from: event.from, to: event.to })))];
    case 'exit':
      return [encodeFrame(frameType.exit, event.payload)];
    case 'lost':
      return [];
  }
}
