/**
 * A socket that Node's HTTP/2 reads and writes through JavaScript. Given the socket itself, Node 20 takes over its native handle, and then
 * corrupts its heap ("corrupted size vs. prev_size") and aborts when a stream is destroyed while its body is still on its way
 * (nodejs/node#65093 is a relative).
 */
import { Duplex } from 'node:stream';

export class JsStream extends Duplex {
  readonly #socket: Duplex;

  /** Takes the socket over, with what was put back into it. */
  constructor(socket: Duplex) {
    super();
    this.#socket = socket;
    socket.on('data', (chunk) => {
      if (!this.push(chunk)) socket.pause();
    });
    socket.on('end', () => this.push(null));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.destroy());
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#socket.write(chunk, done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.#socket.cork();
    chunks.forEach(({ chunk }, at) => {
      this.#socket.write(chunk, at === chunks.length - 1 ? done : undefined);
    });
    this.#socket.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#socket.destroy();
    done(error);
  }
}
