/** What is written goes up as one request; `close` waits for its answer. */
export function uploadStream(
  upload: (body: ReadableStream<Uint8Array>, signal: AbortSignal) => Promise<unknown>,
  signal: AbortSignal | undefined,
): WritableStream<Uint8Array> {
  const cut = new AbortController();
  const ends = signal === undefined ? cut.signal : AbortSignal.any([signal, cut.signal]);
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  writer.closed.catch(() => {}); // told by the upload
  let uploaded: Promise<unknown>;
  return new WritableStream<Uint8Array>({
    start: (controller) => {
      uploaded = upload(readable, ends);
      uploaded.catch((error: unknown) => {
        controller.error(error);
        writer.abort(error).catch(() => {}); // it has ended already
      });
    },
    write: async (bytes) => {
      // An upload that failed reads no more: a write would wait for ever.
      await Promise.race([writer.write(bytes), uploaded.then(() => {})]);
    },
    close: async () => {
      await Promise.race([writer.close(), uploaded]);
      await uploaded;
    },
    abort: (reason) => {
      cut.abort(reason);
    },
  });
}
