/** What an orchestrator says of an environment with a display: one of one colour, in as much of RFB 3.8 as a viewer needs. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

const WIDTH = 64;
const HEIGHT = 48;
const SWITCHED = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: fuse-vnc/1\r\nConnection: Upgrade\r\n\r\n';
/** Of clients, by their first byte; of texts and encodings the fixed part. */
const messageBytes: Record<number, number> = { 0: 20, 2: 4, 3: 10, 4: 8, 5: 6, 6: 8 };
const POINTER = 5;

export class PaintedDisplay implements AsyncDisposable {
  /** Of all viewers. */
  pointerEvents = 0;
  readonly #colour: readonly [number, number, number];
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;

  private constructor(colour: readonly [number, number, number]) {
    this.#colour = colour;
    const status = JSON.stringify({ display: ':0', up: true, width: WIDTH, height: HEIGHT });
    this.#server = createServer((_, response) => response.end(status));
    this.#server.on('upgrade', (_, socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => {}).once('close', () => this.#sockets.delete(socket));
      this.#serve(socket).catch((error: Error) => socket.destroy(error));
    });
  }

  static async start(colour: readonly [number, number, number]): Promise<PaintedDisplay> {
    const display = new PaintedDisplay(colour);
    await once(display.#server.listen(0, '127.0.0.1'), 'listening');
    return display;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`; // it listens on TCP
  }

  get viewers(): number {
    return this.#sockets.size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #serve(socket: Socket): Promise<void> {
    const read = reader(socket);
    socket.write(`${SWITCHED}RFB 003.008\n`);
    await read(12);
    socket.write(Buffer.from([1, 1])); // one way to authenticate: none
    await read(1);
    socket.write(Buffer.alloc(4)); // good
    await read(1);
    const format = Buffer.from([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]);
    const name = Buffer.from('painted');
    socket.write(Buffer.concat([uint16(WIDTH, HEIGHT), format, uint16(0, name.length), name]));
    let painted = false;
    for (;;) {
      const [type = 0] = await read(1);
      const size = messageBytes[type];
      if (size === undefined) throw new Error(`message ${type} is not known here`);
      const message = await read(size - 1);
      if (type === 2) await read(4 * message.readUInt16BE(1));
      if (type === 6) await read(message.readUInt32BE(3));
      if (type === POINTER) this.pointerEvents += 1;
      if (type === 3 && !painted) {
        painted = true;
        socket.write(this.#picture());
      }
    }
  }

  /** In the format that noVNC asks for: red, green, blue and a byte of nothing. */
  #picture(): Buffer {
    const pixels = Buffer.alloc(WIDTH * HEIGHT * 4, Buffer.from([...this.#colour, 0]));
    return Buffer.concat([Buffer.from([0, 0]), uint16(1, 0, 0, WIDTH, HEIGHT), Buffer.alloc(4), pixels]);
  }
}

function uint16(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 2);
  for (const [at, value] of values.entries()) bytes.writeUInt16BE(value, at * 2);
  return bytes;
}

/** So many bytes; rejects when the viewer has left. */
function reader(socket: Socket): (bytes: number) => Promise<Buffer> {
  const chunks = socket.iterator() as AsyncIterator<Buffer>;
  let held = Buffer.alloc(0);
  return async (bytes) => {
    while (held.length < bytes) {
      const { done, value } = await chunks.next();
      if (done) throw new Error('the viewer has left');
      held = Buffer.concat([held, value]);
    }
    const taken = held.subarray(0, bytes);
    held = held.subarray(bytes);
    return taken;
  };
}
