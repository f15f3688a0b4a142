/** Trees in and out of a guest, as tar. What is in the archive is between the guest and whoever reads it: here it is bytes. */
import type { Readable } from 'node:stream';
import { TarIn } from '@fuse/contract';
import type { GuestChannel } from './channel.ts';
import { readFromGuest, sendToGuest } from './transfer.ts';

export async function openGuestTar(
  channel: GuestChannel,
  query: URLSearchParams,
  signal?: AbortSignal,
): Promise<Readable> {
  return (await readFromGuest(channel, { path: `/v1/tar?${query}`, what: 'a tar', signal })).body;
}

export function extractGuestTar(
  channel: GuestChannel,
  query: URLSearchParams,
  body: Readable | Uint8Array,
  signal?: AbortSignal,
): Promise<TarIn> {
  return sendToGuest(channel, { path: `/v1/tar?${query}`, what: 'a tar upload', schema: TarIn, signal }, body);
}
