import type { OutgoingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FastifyReply } from 'fastify';

/** The head goes out before the first byte, and a body that fails cuts the connection, so that nobody takes a part for the whole. */
export async function sendStream(reply: FastifyReply, headers: OutgoingHttpHeaders, body: Readable): Promise<void> {
  reply.hijack();
  reply.raw.writeHead(200, { 'content-type': 'application/octet-stream', 'cache-control': 'no-store', ...headers });
  reply.raw.flushHeaders();
  await pipeline(body, reply.raw).catch((error: unknown) => reply.log.debug({ err: error }, 'stream cut'));
}
