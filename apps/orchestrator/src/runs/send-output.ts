/** The bytes of one output. A guest made them: a browser must neither guess their type nor run them in our origin. */
import { once } from 'node:events';
import { AppError } from '@fuse/contract';
import { contentDisposition, type ObjectStore } from '@fuse/object-store';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { parseByteRange } from '../http/byte-range.ts';
import { clientSignal } from '../http/closing.ts';
import { downloadNameOf } from './output-urls.ts';
import type { RunOutputRow } from './run-reads.ts';

export async function sendOutput(
  objectStore: ObjectStore,
  output: RunOutputRow,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const etag = `"${output.sha256}"`;
  reply.headers({
    ETag: etag,
    'Accept-Ranges': 'bytes',
    'Cache-Control': 'private, no-cache',
    'Content-Disposition': contentDisposition(downloadNameOf(output.path)),
    'Content-Security-Policy': "default-src 'none'; sandbox",
    'X-Content-Type-Options': 'nosniff',
  });
  if (namesTag(request.headers['if-none-match'], etag)) return reply.code(304).send();
  const wantsPart = request.headers['if-range'] === undefined || request.headers['if-range'] === etag;
  const range = wantsPart ? parseByteRange(request.headers.range, output.size_bytes) : undefined;
  if (range === 'unsatisfiable') {
    reply.header('Content-Range', `bytes */${output.size_bytes}`);
    throw new AppError('invalid_argument', `the range lies outside the ${output.size_bytes} bytes of this output`, {
      status: 416,
      details: { field: 'Range' },
    });
  }
  const { body } = await objectStore.get(output.object_key, {
    signal: clientSignal(reply),
    ...(range === undefined ? {} : { range }),
  });
  // Damage that shows at once is an answer of its own; later it cuts the connection.
  await once(body, 'readable');
  reply.type(output.content_type);
  if (range === undefined) return reply.header('Content-Length', output.size_bytes).send(body);
  return reply
    .code(206)
    .headers({
      'Content-Range': `bytes ${range.start}-${range.end - 1}/${output.size_bytes}`,
      'Content-Length': range.end - range.start,
    })
    .send(body);
}

/** `If-None-Match`: a list of tags, or `*`. */
function namesTag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  return header.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag);
}
