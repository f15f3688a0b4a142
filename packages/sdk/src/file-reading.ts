/** Bytes of a file. A download that breaks off goes on where it was with a range, as long as the file is the one that it was. */
import { CutStreamError, FuseError, IntegrityError } from './errors.ts';
import { persist } from './persist.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';

export interface ByteRange {
  /** First byte. */
  start?: number;
  /** Last byte, included, as in Node. */
  end?: number;
}

export interface OpenedFile {
  body: ReadableStream<Uint8Array>;
  /** Of the body; undefined when the server does not say. */
  sizeBytes: number | undefined;
  /** Octal digits. */
  mode: string | undefined;
  uid: number | undefined;
  gid: number | undefined;
  modifiedAt: Date | undefined;
}

export async function openFile(
  transport: Transport,
  environment: string,
  path: string,
  { start, end, signal }: CallOptions & ByteRange,
): Promise<OpenedFile> {
  const open = (from: number, signalled: AbortSignal | undefined, repeat: 'freely' | 'never') =>
    transport.open({
      method: 'GET',
      path: `${environment}/files`,
      query: { path },
      headers: from === 0 && end === undefined ? {} : { Range: `bytes=${from}-${end ?? ''}` },
      repeat,
      timeoutMs: null,
      signal: signalled,
    });
  let first: Response | undefined = await open(start ?? 0, signal, 'freely');
  const { headers } = first;
  const version = versionOf(first);
  const sizeBytes = number(headers.get('content-length'));
  let at = start ?? 0;
  const stop = at + (sizeBytes ?? Number.POSITIVE_INFINITY);

  async function* connection(signalled: AbortSignal): AsyncGenerator<Uint8Array, boolean> {
    const response = first ?? (await open(at, signalled, 'never'));
    if (first === undefined && versionOf(response) !== version)
      throw new IntegrityError(`${path} changed while it was read`);
    first = undefined;
    if (response.body === null) return true;
    const reader = response.body.getReader();
    const abort = () => void reader.cancel(signalled.reason).catch(() => {}); // it may be broken already
    signalled.addEventListener('abort', abort, { once: true });
    try {
      for (;;) {
        const { done, value } = await reader.read();
        signalled.throwIfAborted();
        if (done) break;
        at += value.length;
        yield value;
      }
    } finally {
      signalled.removeEventListener('abort', abort);
      abort();
    }
    return at >= stop || sizeBytes === undefined;
  }

  const bytes = persist(connection, {
    random: transport.config.random,
    signal,
    onCut: (cause) => new CutStreamError(path, String(at), cause),
  });
  return {
    body: streamOf(bytes),
    sizeBytes,
    mode: headers.get('fuse-file-mode') ?? undefined,
    uid: number(headers.get('fuse-file-uid')),
    gid: number(headers.get('fuse-file-gid')),
    modifiedAt: date(headers.get('last-modified')),
  };
}

/** What tells a file from the one that replaced it. */
function versionOf(response: Response): string {
  const { headers, status } = response;
  const total = status === 206 ? headers.get('content-range')?.split('/')[1] : headers.get('content-length');
  return JSON.stringify([headers.get('etag'), headers.get('last-modified'), total]);
}

const number = (header: string | null): number | undefined =>
  header !== null && /^\d+$/.test(header) ? Number(header) : undefined;

function date(header: string | null): Date | undefined {
  const at = new Date(header ?? Number.NaN);
  return Number.isNaN(at.getTime()) ? undefined : at;
}

export function streamOf(chunks: AsyncGenerator<Uint8Array, void>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        const { done, value } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: async () => {
        await chunks.return();
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: 65_536 }),
  );
}

export function bodyOf(response: Response, what: string): ReadableStream<Uint8Array> {
  if (response.body === null) throw new FuseError(`${what} without a body`);
  return response.body as ReadableStream<Uint8Array>; // undici's type of it is wider
}
