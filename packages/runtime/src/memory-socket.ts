/**
 * Both ends of a connection within one process, for HTTP and its upgrades: what is written at one end is read at the other, with backpressure and
 * half-close, as over a socket, without the kernel's copying and waking.
 */
import { Duplex } from 'node:stream';

/** The first is a client's, which closes its side with the other's unless it may be half open, the second a server's. */
export function memorySockets({ allowHalfOpen = false } = {}): [MemorySocket, MemorySocket] {
  const one = new MemorySocket(allowHalfOpen);
  const other = new MemorySocket(true);
  one.connect(other);
  other.connect(one);
  return [one, other];
}

/** What node:http asks of a socket beside being a stream means nothing here. */
export class MemorySocket extends Duplex {
  readonly connecting = false;
  #peer: MemorySocket | undefined;
  /** Of the peer's last write, while nobody has read it here. */
  #taken: (() => void) | undefined;

  constructor(allowHalfOpen: boolean) {
    super({ allowHalfOpen });
  }

  connect(peer: MemorySocket): void {
    this.#peer = peer;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  setTimeout(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  destroySoon(): void {
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy()).end();
  }

  override _read(): void {
    const taken = this.#taken;
    this.#taken = undefined;
    taken?.();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#deliver([chunk], done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.#deliver(
      chunks.map(({ chunk }) => chunk),
      done,
    );
  }

  override _final(done: (error?: Error | null) => void): void {
    const peer = this.#peer;
    process.nextTick(() => {
      if (peer !== undefined && !peer.destroyed) peer.push(null);
      done();
    });
  }

  /** The peer sees an end, as of a connection that was closed; what it writes from then on fails. */
  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const peer = this.#peer;
    this.#peer = undefined;
    this._read();
    process.nextTick(() => peer?.leftAlone());
    done(error);
  }

  leftAlone(): void {
    this.#peer = undefined;
    if (this.destroyed) return;
    this._read();
    if (!this.readableEnded) this.push(null);
  }

  /** Later: whoever writes is not to be called by whoever reads before its own call has returned. */
  #deliver(chunks: Buffer[], done: (error?: Error | null) => void): void {
    process.nextTick(() => {
      const peer = this.#peer;
      if (peer === undefined || peer.destroyed)
        return done(Object.assign(new Error('the other end was closed'), { code: 'EPIPE' }));
      peer.receive(chunks, done);
    });
  }

  receive(chunks: Buffer[], done: () => void): void {
    let room = true;
    for (const chunk of chunks) room = this.push(chunk);
    if (room) done();
    else this.#taken = done;
  }
}
