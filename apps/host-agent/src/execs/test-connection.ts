/** For tests: the other end of a `fuse-exec/1` connection. */
import { request } from 'node:http';
import type { Socket } from 'node:net';
import { ExecOpened, encodeFrame, type Frame, FrameParser, frameType, type TerminalSize } from '@fuse/contract';
import { EXEC_PROTOCOL } from '@fuse/host-protocol';
import { CallFailed, type TestHost } from '../vms/test-host.ts';

export class TestConnection implements Disposable {
  readonly opened: ExecOpened;
  readonly #socket: Socket;
  readonly #frames: Frame[] = [];
  #over = false;
  #wake: () => void = () => {};

  static async open(host: TestHost, vm: string, exec: string, query = ''): Promise<TestConnection> {
    const { socket, head } = await upgrade(host, `/v1/vms/${vm}/execs/${exec}/connect?${query}`);
    const connection = new TestConnection(socket, head);
    const first = await connection.next();
    if (first?.type !== frameType.open) throw new Error(`the first frame is of type ${first?.type}`);
    Object.assign(connection, { opened: ExecOpened.parse(JSON.parse(Buffer.from(first.payload).toString())) });
    return connection;
  }

  private constructor(socket: Socket, head: Buffer) {
    this.opened = { exec_id: '', offset: 0, stdin_bytes: 0, stdin_closed: false };
    this.#socket = socket;
    const parser = new FrameParser();
    const take = (chunk: Uint8Array) => {
      this.#frames.push(...parser.push(chunk));
      this.#wake();
    };
    const end = () => {
      this.#over = true;
      this.#wake();
    };
    take(head);
    socket.on('data', take);
    socket.on('error', end);
    socket.on('close', end);
  }

  /** Undefined once the connection is over. */
  async next(): Promise<Frame | undefined> {
    for (;;) {
      const frame = this.#frames.shift();
      if (frame !== undefined || this.#over) return frame;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** All frames to the end of the connection. */
  async rest(): Promise<Frame[]> {
    const frames: Frame[] = [];
    for (;;) {
      const frame = await this.next();
      if (frame === undefined) return frames;
      frames.push(frame);
    }
  }

  /** Output until it holds the text; throws when the connection ends before. */
  async until(text: string): Promise<string> {
    let seen = '';
    while (!seen.includes(text)) {
      const frame = await this.next();
      if (frame === undefined) throw new Error(`the connection ended behind ${JSON.stringify(seen)}`);
      if (frame.type === frameType.stdout || frame.type === frameType.stderr)
        seen += Buffer.from(frame.payload).toString();
    }
    return seen;
  }

  type(text: string | Uint8Array): void {
    this.#send(frameType.stdin, Buffer.from(text));
  }

  end(): void {
    this.#send(frameType.stdinEnd, Buffer.alloc(0));
  }

  signal(name: string, tree = false): void {
    this.#send(frameType.signal, Buffer.from(JSON.stringify({ signal: name, tree })));
  }

  resize(size: TerminalSize): void {
    this.#send(frameType.resize, Buffer.from(JSON.stringify(size)));
  }

  sendRaw(bytes: Uint8Array): void {
    this.#socket.write(bytes);
  }

  /** Reads no more, as a client that hangs does. */
  stall(): void {
    this.#socket.removeAllListeners('data');
    this.#socket.pause();
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }

  #send(type: number, payload: Uint8Array): void {
    this.#socket.write(encodeFrame(type, payload));
  }
}

/** Throws CallFailed when it is refused. */
function upgrade(host: TestHost, path: string): Promise<{ socket: Socket; head: Buffer }> {
  return new Promise((resolve, reject) => {
    const call = request(`${host.url}${path}`, {
      headers: { ...host.authorization, connection: 'Upgrade', upgrade: EXEC_PROTOCOL },
    });
    call.on('upgrade', (_response, socket, head) => resolve({ socket: socket as Socket, head })); // http gives one
    call.on('response', (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => reject(new CallFailed(response.statusCode ?? 0, text)));
    });
    call.on('error', reject);
    call.end();
  });
}
