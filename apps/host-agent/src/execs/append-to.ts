import { write, writeSync } from 'node:fs';
import { promisify } from 'node:util';

/** The way through the thread pool takes ten times as long as a few bytes into the page cache, and a key's echo waits for it. */
const SMALL_BYTES = 8_192;
const writeLater = promisify(write);

/** All of it, behind what the file holds; it is opened for appending. */
export async function appendTo(fd: number, bytes: Uint8Array): Promise<void> {
  if (bytes.length <= SMALL_BYTES) for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at);
  else for (let at = 0; at < bytes.length; ) at += (await writeLater(fd, bytes, at)).bytesWritten;
}
