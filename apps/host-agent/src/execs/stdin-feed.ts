/** An exec's stdin: from the object store, at the guest's pace. */
import type { ObjectStore } from '@fuse/object-store';
import type { ExecConversation } from '../guest/guest.ts';
import { rejection } from './rejection.ts';

const PIECE_BYTES = 64 * 1024;

/** What should have been the command's input cannot be read any more. */
export class StdinSourceError extends Error {
  override readonly name = 'StdinSourceError';
}

/**
 * Sends the object from byte `fromByte` on, then the end of stdin. Throws StdinSourceError when the store fails, anything else when the
 * conversation is over.
 */
export async function feedStdin(
  source: { store: ObjectStore; key: string; fromByte: number },
  conversation: ExecConversation,
  signal: AbortSignal,
): Promise<void> {
  const bytes = readFrom(source, signal);
  const stopped = rejection(signal);
  try {
    for (;;) {
      const next = await bytes.next().catch((cause: unknown) => {
        throw new StdinSourceError('stdin could not be read from the object store', { cause });
      });
      if (next.done === true) break;
      for (let at = 0; at < next.value.length; at += PIECE_BYTES)
        await Promise.race([conversation.writeStdin(next.value.subarray(at, at + PIECE_BYTES)), stopped.promise]);
    }
    conversation.endStdin();
  } finally {
    stopped.forget();
    await bytes.return(undefined);
  }
}

async function* readFrom(
  { store, key, fromByte }: { store: ObjectStore; key: string; fromByte: number },
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (fromByte > 0 && fromByte >= (await store.head(key)).sizeBytes) return;
  const { body } = await store.get(key, fromByte === 0 ? { signal } : { signal, range: { start: fromByte } });
  for await (const chunk of body) yield chunk as Uint8Array; // a byte stream: no encoding is set
}
