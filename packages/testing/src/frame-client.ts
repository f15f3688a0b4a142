/** For tests: the client's end of a connection of frames, raw or a WebSocket. */
import { ATTACH_PROTOCOL, encodeFrame, type Frame, FrameParser, frameType } from '@fuse/contract';
import { WebSocket } from 'ws';
import { rawExchange, upgradeHead } from './raw-http.ts';

export interface FrameServer {
  url: string;
  /** None: no `Authorization` is sent. */
  token?: string;
}

const authorization = ({ token }: FrameServer): Record<string, string> =>
  token === undefined ? {} : { Authorization: `Bearer ${token}` };

interface Wire {
  write(bytes: Uint8Array): void;
  cut(): void;
  leave(): void;
}

export class FrameClient {
  readonly frames: Frame[] = [];
  /** How it ended: a WebSocket's code, 0 for the end of a raw connection, -1 when it was reset. */
  readonly ended: Promise<{ code: number; reason: string }>;
  #wire: Wire | undefined;
  #isOver = false;
  #text = '';
  #bytes = 0;
  #lookers = new Set<() => void>();
  #end: (how: { code: number; reason: string }) => void = () => {};
  readonly #parser = new FrameParser();

  private constructor() {
    this.ended = new Promise((resolve) => {
      this.#end = (how) => {
        this.#isOver = true;
        resolve(how);
        this.#look();
      };
    });
  }

  /** Resolves once the 101 is there; rejects with the whole answer when it is another. `behind` is sent in the same piece as the request. */
  static async raw(server: FrameServer, path: string, behind: Uint8Array = new Uint8Array()): Promise<FrameClient> {
    const client = new FrameClient();
    const head = Buffer.from(upgradeHead(path, ATTACH_PROTOCOL, authorization(server)));
    const exchange = rawExchange(server.url, Buffer.concat([head, behind]));
    const text = await exchange.until((seen) => seen.includes('\r\n\r\n'));
    if (!text.startsWith('HTTP/1.1 101 ')) throw new Error(String((await exchange.ended).bytes));
    const { socket } = exchange;
    client.#take(exchange.received().subarray(text.indexOf('\r\n\r\n') + 4));
    socket.on('data', (bytes: Buffer) => client.#take(bytes));
    void exchange.ended.then(({ reset }) => client.#end({ code: reset ? -1 : 0, reason: '' }));
    client.#wire = {
      write: (bytes) => void socket.write(bytes),
      cut: () => socket.resetAndDestroy(),
      leave: () => socket.end(),
    };
    return client;
  }

  /** Rejects with the status of a refusal in the message. */
  static async webSocket(server: FrameServer, path: string): Promise<FrameClient> {
    const client = new FrameClient();
    const ws = new WebSocket(`${server.url.replace('http', 'ws')}${path}`, { headers: authorization(server) });
    ws.on('message', (data: Buffer) => client.#take(data));
    ws.once('close', (code, reason) => client.#end({ code, reason: String(reason) }));
    client.#wire = { write: (bytes) => ws.send(bytes), cut: () => ws.terminate(), leave: () => ws.close() };
    await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));
    ws.on('error', () => {});
    return client;
  }

  #take(bytes: Uint8Array): void {
    for (const frame of this.#parser.push(bytes)) {
      this.frames.push(frame);
      if (frame.type === frameType.stdout || frame.type === frameType.stderr) {
        this.#text += Buffer.from(frame.payload).toString('latin1');
        this.#bytes += frame.payload.length;
      }
    }
    this.#look();
  }

  #look(): void {
    for (const look of this.#lookers) look();
  }

  send(type: number, payload: Uint8Array | string = ''): void {
    this.#wire?.write(encodeFrame(type, Buffer.from(payload)));
  }

  sendJson(type: number, value: unknown): void {
    this.send(type, JSON.stringify(value));
  }

  sendBytes(bytes: Uint8Array): void {
    this.#wire?.write(bytes);
  }

  cut(): void {
    this.#wire?.cut();
  }

  leave(): void {
    this.#wire?.leave();
  }

  /** Output so far, a character a byte. */
  get output(): string {
    return this.#text;
  }

  get outputBytes(): number {
    return this.#bytes;
  }

  /** Of the first frame of that type. */
  json(type: number): unknown {
    const frame = this.frames.find((each) => each.type === type);
    return frame === undefined ? undefined : JSON.parse(Buffer.from(frame.payload).toString());
  }

  /** Rejects when the connection ends before. */
  until(isDone: (client: FrameClient) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = () => {
        if (isDone(this)) resolve();
        else if (this.#isOver)
          reject(new Error(`the connection ended behind ${JSON.stringify(this.#text.slice(-500))}`));
        else return;
        this.#lookers.delete(look);
      };
      this.#lookers.add(look);
      look();
    });
  }

  says(text: string): Promise<void> {
    return this.until(({ output }) => output.includes(text));
  }
}
