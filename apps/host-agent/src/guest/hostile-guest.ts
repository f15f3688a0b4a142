/** For tests: a peer at the other end of a guest channel that says what it is told to, and a Vmm whose only working part is that channel. */
import { createServer as createHttp2, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Vmm, VmmExit } from '../vmm/driver.ts';
import { connectUnixSocket } from '../vmm/unix-socket.ts';

const GREETING = 'FUSE/1 ready\n';

export interface HostileGuestOptions {
  directory: string;
  /** What is written first on each connection of the host; by default the greeting. HTTP/2 begins behind it. */
  greet?: (connection: number) => string | Buffer;
  onStream?: (stream: ServerHttp2Stream, path: string, method: string) => void;
}

export class HostileGuest implements AsyncDisposable {
  readonly vmm: Vmm;
  connections = 0;
  readonly sessions = new Set<ServerHttp2Session>();
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #exit: (exit: VmmExit) => void = () => {};

  private constructor(server: Server, directory: string) {
    this.#server = server;
    const exited = new Promise<VmmExit>((resolve) => {
      this.#exit = resolve;
    });
    const unused = () => Promise.reject(new Error('not part of this test'));
    this.vmm = {
      pid: process.pid,
      exited,
      pause: unused,
      resume: unused,
      snapshot: unused,
      capture: unused,
      destroy: unused,
      openGuestChannel: () => connectUnixSocket(directory, 'guest.sock'),
    };
  }

  static async listen(options: HostileGuestOptions): Promise<HostileGuest> {
    const { directory, greet = () => GREETING, onStream } = options;
    const http2 = createHttp2();
    http2.on('sessionError', () => {});
    http2.on('stream', (stream, headers) => {
      stream.on('error', () => {});
      onStream?.(stream, String(headers[':path']), String(headers[':method']));
    });
    const server = createServer();
    const guest = new HostileGuest(server, directory);
    http2.on('session', (session) => guest.sessions.add(session));
    server.on('connection', (socket) => {
      guest.#sockets.add(socket);
      socket.on('error', () => {});
      guest.connections += 1;
      // Node's HTTP/2 takes a socket over only when no write of anybody else is under way.
      socket.write(greet(guest.connections), () => {
        if (!socket.destroyed) http2.emit('connection', socket);
      });
    });
    await new Promise<void>((resolve) => server.listen(join(directory, 'guest.sock'), resolve));
    return guest;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  die(): void {
    this.#exit({ code: null, signal: 'SIGKILL', logTail: '', outOfMemory: false });
    this.cut();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
