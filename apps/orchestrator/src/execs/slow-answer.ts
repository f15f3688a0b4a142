/**
 * A JSON answer that may take long, past every idle timeout on the way: once its status is sure its head is sent, and a space every HEARTBEAT_MS until its body is there;
 * parsers of JSON pass over space. What fails after that has no status any more: the connection is cut, which no client takes for an answer.
 */
import { HEARTBEAT_MS } from '@fuse/contract';
import type { FastifyReply } from 'fastify';
import { toJsonLine } from '../http/response-headers.ts';

/** `work` says by `sure` when nothing but a 200 or a cut can follow. */
export async function answerSlowly<T>(
  reply: FastifyReply,
  work: (sure: () => void) => Promise<T>,
  heartbeatMs = HEARTBEAT_MS,
): Promise<T | FastifyReply> {
  const response = reply.raw;
  let beat: NodeJS.Timeout | undefined;
  const onBeat = () => {
    if (!reply.sent) {
      reply.hijack();
      for (const [name, value] of Object.entries(reply.getHeaders()))
        if (value !== undefined) response.setHeader(name, value);
      response.on('error', () => {}); // 'close' follows
      response.writeHead(200, { 'Content-Type': 'application/json; charset=utf-8', 'X-Accel-Buffering': 'no' });
    }
    if (!response.writableNeedDrain) response.write(' ');
  };
  const sure = () => {
    beat ??= setInterval(onBeat, heartbeatMs);
  };
  try {
    const answer = await work(sure);
    if (!reply.sent) return answer;
    response.end(toJsonLine(answer));
  } catch (error) {
    if (!reply.sent) throw error;
    reply.log.warn({ err: error }, 'an answer that was begun was cut');
    response.destroy();
  } finally {
    clearInterval(beat);
  }
  return reply;
}
