/** Files in and out of a guest. */
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http2';
import type { Readable } from 'node:stream';
import { AppError } from '@fuse/contract';
import { GuestFileTaken, GuestFileWritten } from '@fuse/host-protocol';
import type { GuestChannel } from './channel.ts';
import { readFromGuest, sendToGuest } from './transfer.ts';

export interface FileToWrite {
  path: string;
  mode?: string;
  uid?: number;
  gid?: number;
  sha256?: string;
}

/** What a guest says of a file, besides its bytes. */
export interface FileHead {
  /** Of what comes. */
  lengthBytes: number;
  /** Of all of it. */
  sizeBytes: number;
  /** Octal. */
  mode: string;
  uid: number;
  gid: number;
  modifiedMs: number;
}

/**
 * By the protocol's own query, when the caller has one. Without a sum to check, the sum is made here: under emulation the guest would take longer for it than for
 * all the rest.
 */
export async function writeGuestFile(
  channel: GuestChannel,
  file: FileToWrite | URLSearchParams,
  body: Readable | Uint8Array,
  signal?: AbortSignal,
): Promise<GuestFileWritten> {
  const query = file instanceof URLSearchParams ? file : queryOf(file);
  const call = { what: 'a file upload', signal };
  if (query.has('sha256'))
    return sendToGuest(channel, { ...call, path: `/v1/files?${query}`, schema: GuestFileWritten }, body);
  query.set('unhashed', '1');
  const sum = createHash('sha256');
  const asked = { ...call, path: `/v1/files?${query}`, schema: GuestFileTaken };
  const { size_bytes } = await sendToGuest(channel, asked, body, (chunk) => sum.update(chunk));
  return { size_bytes, sha256: sum.digest('hex') };
}

function queryOf(file: FileToWrite): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(file)) if (value !== undefined) query.set(name, String(value));
  return query;
}

export async function readGuestFile(
  channel: GuestChannel,
  path: string,
  signal?: AbortSignal,
): Promise<{ sizeBytes: number; body: Readable }> {
  const query = new URLSearchParams({ path });
  const { headers, body } = await readFromGuest(channel, download(query, signal), lengthIn);
  return { sizeBytes: lengthIn(headers), body };
}

export async function openGuestFile(
  channel: GuestChannel,
  query: URLSearchParams,
  signal?: AbortSignal,
): Promise<{ head: FileHead; body: Readable }> {
  const { headers, body } = await readFromGuest(channel, download(query, signal), lengthIn);
  try {
    return { head: headIn(headers), body };
  } catch (error) {
    body.destroy();
    throw error;
  }
}

const download = (query: URLSearchParams, signal: AbortSignal | undefined) => ({
  path: `/v1/files?${query}`,
  what: 'a file download',
  signal,
});

const lengthIn = (headers: IncomingHttpHeaders): number => numberIn(headers, 'content-length', 'size');

function headIn(headers: IncomingHttpHeaders): FileHead {
  const mode = String(headers['file-mode']);
  if (!/^[0-7]{1,5}$/.test(mode)) throw new AppError('unavailable', 'the guest gave a file no mode');
  return {
    lengthBytes: lengthIn(headers),
    sizeBytes: numberIn(headers, 'file-size', 'size'),
    mode,
    uid: numberIn(headers, 'file-uid', 'owner'),
    gid: numberIn(headers, 'file-gid', 'group'),
    modifiedMs: numberIn(headers, 'file-modified-ms', 'time', /^-?\d{1,15}$/),
  };
}

function numberIn(headers: IncomingHttpHeaders, name: string, what: string, form = /^\d{1,15}$/): number {
  const text = String(headers[name]);
  if (!form.test(text)) throw new AppError('unavailable', `the guest gave a file no ${what}`);
  return Number(text);
}
