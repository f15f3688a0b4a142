/** The bytes of a guest's file, or a part of them. A guest made them: a browser must neither guess their type nor run them in our origin. */
import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '@fuse/contract';
import { contentDisposition } from '@fuse/object-store';
import type { FastifyReply } from 'fastify';
import { type ByteRange, parseByteRange } from '../http/byte-range.ts';
import type { GuestFileService, Target } from './guest-file-service.ts';
import { guestQuery } from './queries.ts';

export interface FileToSend {
  path: string;
  /** The request's header. */
  range: string | undefined;
}

export async function sendFile(
  files: GuestFileService,
  target: Target,
  { path, range: asked }: FileToSend,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const range = await rangeOf(files, target, { path, range: asked }, reply);
  const body = await files.open(target, 'file', guestQuery({ path, follow: true, ...range }));
  const sizeBytes = numberIn(body.headers, 'file-size');
  const lengthBytes = numberIn(body.headers, 'content-length');
  if (lengthBytes !== (range === undefined ? sizeBytes : range.end - range.start)) {
    body.destroy();
    throw new AppError('conflict', `${path} changed while it was being opened`, {
      details: { reason: 'changed', path },
    });
  }
  describe(reply, path, body.headers);
  reply.header('Content-Length', lengthBytes);
  if (range === undefined) return reply.send(body);
  return reply
    .code(206)
    .header('Content-Range', `bytes ${range.start}-${range.end - 1}/${sizeBytes}`)
    .send(body);
}

export async function sendHead(
  files: GuestFileService,
  target: Target,
  path: string,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const headers = await headOf(files, target, path);
  describe(reply, path, headers);
  return reply.header('Content-Length', numberIn(headers, 'file-size')).send();
}

/** The size decides what a range means, so it is asked for first. */
async function rangeOf(
  files: GuestFileService,
  target: Target,
  { path, range }: FileToSend,
  reply: FastifyReply,
): Promise<ByteRange | undefined> {
  if (range === undefined) return undefined;
  if (/^\s*bytes=.*,/.test(range))
    throw notSatisfiable('several ranges at once are not served', 'Ask for one range at a time.');
  const sizeBytes = numberIn(await headOf(files, target, path), 'file-size');
  const part = parseByteRange(range, sizeBytes);
  if (part !== 'unsatisfiable') return part;
  reply.header('Content-Range', `bytes */${sizeBytes}`);
  throw notSatisfiable(`the range lies outside the ${sizeBytes} bytes of ${path}`, `Its size is ${sizeBytes} bytes.`);
}

const notSatisfiable = (message: string, hint: string): AppError =>
  new AppError('invalid_argument', message, { status: 416, details: { field: 'Range' }, hint });

async function headOf(files: GuestFileService, target: Target, path: string): Promise<IncomingHttpHeaders> {
  const answer = await files.open(target, 'file', guestQuery({ path, follow: true, start: 0, end: 0 }));
  answer.resume(); // it has no bytes
  return answer.headers;
}

function describe(reply: FastifyReply, path: string, headers: IncomingHttpHeaders): void {
  reply.headers({
    'Accept-Ranges': 'bytes',
    'Cache-Control': 'no-store',
    'Content-Disposition': contentDisposition(path.replace(/\/+$/, '').split('/').at(-1) ?? ''),
    'Content-Security-Policy': "default-src 'none'; sandbox",
    'Content-Type': 'application/octet-stream',
    'X-Content-Type-Options': 'nosniff',
    'Fuse-File-Mode': textIn(headers, 'file-mode'),
    'Fuse-File-Uid': textIn(headers, 'file-uid'),
    'Fuse-File-Gid': textIn(headers, 'file-gid'),
    'Last-Modified': new Date(numberIn(headers, 'file-modified-ms')).toUTCString(),
  });
}

function textIn(headers: IncomingHttpHeaders, name: string): string {
  const value = headers[name];
  if (typeof value !== 'string') throw new AppError('internal', `a host gave a file no ${name}`);
  return value;
}

const numberIn = (headers: IncomingHttpHeaders, name: string): number => Number(textIn(headers, name));
