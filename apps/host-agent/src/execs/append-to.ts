import { writeSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';

/** The way through the thread pool takes ten times as long as a few bytes into the page cache, and a key's echo waits for it. */
const SMALL_BYTES = 8_192;

/** All of it, behind what the file holds; it is opened for appending. */
export async function appendTo(file: FileHandle, bytes: Uint8Array): Promise<void> {
  if (bytes.length <= SMALL_BYTES) for (let at = 0; at < bytes.length; ) at += writeSync(file.fd, bytes, at);
  else for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
}
