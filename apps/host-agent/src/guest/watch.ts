/** What a guest tells of its files as they change: one event a line, each checked before it goes on. */
import { Readable } from 'node:stream';
import { AppError, WatchEvent } from '@fuse/contract';
import type { GuestChannel } from './channel.ts';
import { readFromGuest } from './transfer.ts';

/** A path of 4 096 bytes, each escaped. */
const MAX_LINE_BYTES = 32_768;
const NEWLINE = 0x0a;

/** Lines of WatchEvent; fails when it is cut. */
export async function watchGuestFiles(
  channel: GuestChannel,
  query: URLSearchParams,
  signal?: AbortSignal,
): Promise<Readable> {
  const { body } = await readFromGuest(channel, { path: `/v1/watch?${query}`, what: 'a watch', signal });
  const lines = Readable.from(checkedLines(body), { objectMode: false });
  lines.once('close', () => body.destroy());
  return lines;
}

async function* checkedLines(body: Readable): AsyncGenerator<string> {
  let pending: Buffer = Buffer.alloc(0);
  for await (const chunk of body) {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    const end = pending.lastIndexOf(NEWLINE) + 1;
    if (end > 0) yield checked(pending.subarray(0, end));
    pending = pending.subarray(end);
    if (pending.length > MAX_LINE_BYTES) throw new AppError('unavailable', 'a line of a watch is too long');
  }
  if (pending.length > 0) throw new AppError('unavailable', 'the guest cut a line of a watch');
}

function checked(lines: Buffer): string {
  let out = '';
  for (const line of lines.toString('utf8').split('\n')) {
    if (line === '') continue;
    try {
      out += `${JSON.stringify(WatchEvent.parse(JSON.parse(line)))}\n`;
    } catch (cause) {
      throw new AppError('unavailable', 'a line of a watch is not what it should be', { cause });
    }
  }
  return out;
}
