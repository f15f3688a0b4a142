/** A connection that is the client's bytes from its 101 on, half-close included. */
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { webSocketClose } from '@fuse/contract';
import { ClientGone } from './closing.ts';
import { type Ending, LINGER_MS, type Peer } from './peer.ts';
import { writeWithRoom } from './write-with-room.ts';

export class RawPeer implements Peer {
  readonly #socket: Socket;
  #receivedBytes = 0;
  #sentBytes = 0;

  /** Writes the 101, exactly these bytes. */
  constructor(socket: Socket, protocol: string) {
    this.#socket = socket;
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: ${protocol}\r\nConnection: Upgrade\r\n\r\n`);
  }

  async *received(): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of this.#socket.iterator({ destroyOnReturn: false })) {
        this.#receivedBytes += chunk.length;
        yield chunk;
      }
    } catch (cause) {
      throw new ClientGone('the client cut the connection', { cause });
    }
  }

  async send(bytes: Uint8Array): Promise<void> {
    this.#sentBytes += bytes.length;
    await writeWithRoom(this.#socket, bytes).catch((cause: unknown) => {
      throw new ClientGone('the client cut the connection', { cause });
    });
  }

  sendEnd(): void {
    this.#socket.end();
  }

  close({ code }: Ending): void {
    const socket = this.#socket;
    const linger = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => clearTimeout(linger));
    if (code !== webSocketClose.done) {
      // Written out first: an end that looks like any other would make a part look like the whole.
      if (socket.writableLength === 0 || socket.writableEnded) reset(socket);
      else socket.write(Buffer.alloc(0), () => reset(socket));
      return;
    }
    // Closed with bytes unread it would be reset, and the client could lose the last frame.
    socket.end();
    if (socket.readableEnded) socket.destroySoon();
    else socket.once('end', () => socket.destroySoon()).resume();
  }

  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  get sentBytes(): number {
    return this.#sentBytes;
  }
}

/** Of TLS, closed without the word of farewell that an end has: there is no reset to be had. */
function reset(socket: Socket): void {
  if (socket instanceof TLSSocket) socket.destroy();
  else socket.resetAndDestroy();
}
