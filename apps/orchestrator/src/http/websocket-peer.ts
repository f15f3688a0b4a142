/**
 * A WebSocket: binary messages both ways. It is pinged every PING_MS; a client of which nothing is heard for two of them, not even that it takes what it is
 * sent, is dropped.
 */
import { Readable } from 'node:stream';
import { TUNNEL_END, webSocketClose } from '@fuse/contract';
import type { WebSocket } from 'ws';
import { ClientGone } from './closing.ts';
import { type Ending, LINGER_MS, type Peer } from './peer.ts';

const PING_MS = 15_000;
const MISSED_PINGS = 2;
/** Written ahead of the client. */
const ROOM_BYTES = 262_144;
/** RFC 6455: a close frame's payload is at most 125 bytes, 2 of them the code. */
const MAX_REASON_BYTES = 123;
/** The client closed as it should; 1005: without a code. */
const CLEAN_CLOSES: readonly number[] = [1000, 1001, 1005];

export interface WebSocketPeerOptions {
  /** The text message `end` says that no more is sent. */
  halfCloses: boolean;
  pingMs?: number | undefined;
}

export class WebSocketPeer implements Peer {
  readonly #ws: WebSocket;
  readonly #pieces: Readable;
  #unheardPings = 0;
  #receivedBytes = 0;
  #sentBytes = 0;

  constructor(ws: WebSocket, { halfCloses, pingMs = PING_MS }: WebSocketPeerOptions) {
    this.#ws = ws;
    const pieces = new Readable({ objectMode: true, highWaterMark: 1, read: () => ws.resume() });
    this.#pieces = pieces;
    pieces.on('error', () => {}); // told to whoever reads
    const finish = () => {
      if (!pieces.readableEnded && !pieces.destroyed) pieces.push(null);
    };
    let ended = false;
    ws.on('message', (data: Buffer, isBinary) => {
      this.#unheardPings = 0;
      if (ended) return;
      if (!isBinary) {
        if (halfCloses && data.toString() === TUNNEL_END) {
          ended = true;
          finish();
        } else ws.close(webSocketClose.notBinary, 'messages are binary here');
        return;
      }
      this.#receivedBytes += data.length;
      if (data.length > 0 && !pieces.push(data)) ws.pause();
    });
    ws.on('error', () => {}); // 'close' follows
    ws.on('pong', () => {
      this.#unheardPings = 0;
    });
    const pinging = setInterval(() => this.#ping(), pingMs);
    ws.once('close', (code) => {
      clearInterval(pinging);
      if (ended) return;
      ended = true;
      if (CLEAN_CLOSES.includes(code)) finish();
      else pieces.destroy(new ClientGone('the client cut the connection'));
    });
  }

  #ping(): void {
    // While it is we who do not read, its answers are not seen.
    if (this.#unheardPings >= MISSED_PINGS && !this.#ws.isPaused) {
      this.#ws.terminate();
      return;
    }
    this.#unheardPings += 1;
    if (this.#ws.readyState === this.#ws.OPEN) this.#ws.ping();
  }

  received(): AsyncIterable<Uint8Array> {
    return this.#pieces.iterator({ destroyOnReturn: false });
  }

  send(bytes: Uint8Array): Promise<void> {
    const ws = this.#ws;
    if (ws.readyState !== ws.OPEN) return Promise.reject(new ClientGone('the client closed the connection'));
    this.#sentBytes += bytes.length;
    return new Promise((resolve, reject) => {
      ws.send(bytes, { binary: true }, (cause) => {
        if (cause !== undefined && cause !== null) {
          reject(new ClientGone('the client closed the connection', { cause }));
          return;
        }
        this.#unheardPings = 0; // it takes what it is sent
        resolve();
      });
      if (ws.bufferedAmount < ROOM_BYTES) resolve();
    });
  }

  sendEnd(): void {
    if (this.#ws.readyState === this.#ws.OPEN) this.#ws.send(TUNNEL_END);
  }

  close({ code, reason }: Ending): void {
    const ws = this.#ws;
    ws.removeAllListeners('message');
    ws.resume(); // its closing answer has to be read
    const linger = setTimeout(() => ws.terminate(), LINGER_MS);
    ws.once('close', () => clearTimeout(linger));
    ws.close(code, cutUtf8(reason, MAX_REASON_BYTES));
  }

  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  get sentBytes(): number {
    return this.#sentBytes;
  }
}

/** At most so many bytes, no character cut. */
function cutUtf8(text: string, maxBytes: number): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read);
}
