/**
 * An object is one file, so that bytes and metadata become visible together: the bytes, then a trailer of 1024 bytes:
 * JSON {format, sizeBytes, sha256, contentType} padded with spaces, the hex sha256 of the padded JSON, a line break.
 * A file without a whole trailer was damaged: only whole files are ever renamed into place.
 */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import type { ObjectInfo } from '../object-store.ts';
import { damaged } from '../verified-body.ts';

export const TRAILER_BYTES = 1_024;
const SUM_LENGTH = 64;
const JSON_BYTES = TRAILER_BYTES - SUM_LENGTH - 1;
const FORMAT = 1;

export function encodeTrailer({ sizeBytes, sha256, contentType }: ObjectInfo): Buffer {
  const json = Buffer.from(JSON.stringify({ format: FORMAT, sizeBytes, sha256, contentType }));
  if (json.length > JSON_BYTES) throw new RangeError(`metadata of ${json.length} bytes is over ${JSON_BYTES}`);
  const padded = Buffer.concat([json, Buffer.alloc(JSON_BYTES - json.length, ' ')]);
  return Buffer.concat([padded, Buffer.from(`${sumOf(padded)}\n`)]);
}

export async function readTrailer(file: FileHandle, fileBytes: number, key: string): Promise<ObjectInfo> {
  const sizeBytes = fileBytes - TRAILER_BYTES;
  if (sizeBytes < 0) throw damaged(key, `its file has only ${fileBytes} bytes`);
  const trailer = Buffer.alloc(TRAILER_BYTES);
  const { bytesRead } = await file.read(trailer, 0, TRAILER_BYTES, sizeBytes);
  const padded = trailer.subarray(0, JSON_BYTES);
  const sum = trailer.subarray(JSON_BYTES, JSON_BYTES + SUM_LENGTH).toString('latin1');
  if (bytesRead !== TRAILER_BYTES || sum !== sumOf(padded)) throw damaged(key, 'its metadata is not whole');
  // Its sum shows that `encodeTrailer` wrote it, hence the shape.
  const stored = JSON.parse(padded.toString()) as {
    format: number;
    sizeBytes: number;
    sha256: string;
    contentType: string;
  };
  if (stored.format !== FORMAT) throw damaged(key, `its format ${stored.format} is not known`);
  if (stored.sizeBytes !== sizeBytes) throw damaged(key, `it has ${sizeBytes} of ${stored.sizeBytes} bytes`);
  return { key, sizeBytes, sha256: stored.sha256, contentType: stored.contentType };
}

const sumOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
