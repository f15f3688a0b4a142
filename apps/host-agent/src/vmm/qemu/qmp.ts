/**
 * QMP, QEMU's control protocol: JSON lines over a Unix socket. QEMU serves one connection at a time, so each use opens its own and
 * closes it: nothing is held that an adopting host agent would have to wait for.
 */
import type { Socket } from 'node:net';
import { AppError } from '@fuse/contract';
import { withDeadline } from '@fuse/runtime';
import { z } from 'zod';
import { connectUnixSocket } from '../unix-socket.ts';

const MAX_LINE_BYTES = 1_048_576;

const Message = z.object({
  QMP: z.unknown().optional(),
  id: z.number().optional(),
  return: z.unknown().optional(),
  error: z.object({ class: z.string(), desc: z.string() }).optional(),
});
type Message = z.infer<typeof Message>;

interface Waiter {
  resolve: (message: Message) => void;
  reject: (error: Error) => void;
  matches: (message: Message) => boolean;
}

export class Qmp {
  readonly #socket: Socket;
  readonly #waiters = new Set<Waiter>();
  #line: Buffer[] = [];
  #lineBytes = 0;
  #nextId = 1;
  #failure: Error | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk) => this.#receive(chunk));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new AppError('unavailable', 'QEMU closed its control socket')));
  }

  /** Connects and negotiates; ready for commands. */
  static async connect(directory: string, socketName: string, signal: AbortSignal): Promise<Qmp> {
    const qmp = new Qmp(await connectUnixSocket(directory, socketName));
    signal.addEventListener('abort', () => qmp.#socket.destroy(), { once: true });
    try {
      await qmp.#next((message) => message.QMP !== undefined);
      await qmp.execute('qmp_capabilities');
      return qmp;
    } catch (error) {
      qmp.close();
      throw error;
    }
  }

  async execute(command: string, args?: Record<string, unknown>): Promise<unknown> {
    const id = this.#nextId++;
    const answered = this.#next((message) => message.id === id);
    this.#socket.write(
      `${JSON.stringify({ execute: command, id, ...(args === undefined ? {} : { arguments: args }) })}\n`,
    );
    const message = await answered;
    if (message.error !== undefined)
      throw new AppError('unavailable', `QEMU refused ${command}: ${message.error.desc.slice(0, 512)}`);
    return message.return;
  }

  async status(): Promise<string> {
    return z.object({ status: z.string() }).parse(await this.execute('query-status')).status;
  }

  close(): void {
    this.#socket.destroy();
  }

  #next(matches: Waiter['matches']): Promise<Message> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) reject(this.#failure);
      else this.#waiters.add({ resolve, reject, matches });
    });
  }

  #receive(chunk: Buffer): void {
    let rest = chunk;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      const line = Buffer.concat([...this.#line, rest.subarray(0, end)]).toString('utf8');
      this.#line = [];
      this.#lineBytes = 0;
      rest = rest.subarray(end + 1);
      if (line.trim() !== '') this.#dispatch(line);
    }
    this.#line.push(rest);
    this.#lineBytes += rest.length;
    if (this.#lineBytes > MAX_LINE_BYTES) this.#fail(new AppError('unavailable', 'QEMU sent an endless line'));
  }

  #dispatch(line: string): void {
    let message: Message;
    try {
      message = Message.parse(JSON.parse(line));
    } catch (cause) {
      this.#fail(new AppError('unavailable', 'QEMU sent what is not QMP', { cause }));
      return;
    }
    for (const waiter of this.#waiters) {
      if (!waiter.matches(message)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(message);
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#socket.destroy();
    for (const waiter of this.#waiters) waiter.reject(this.#failure);
    this.#waiters.clear();
  }
}

/** One conversation, closed at its end, cut off at the deadline. */
export async function withQmp<T>(
  options: { directory: string; socketName: string; deadlineMs: number; signal?: AbortSignal | undefined },
  talk: (qmp: Qmp) => Promise<T>,
): Promise<T> {
  return withDeadline(
    options.deadlineMs,
    'QEMU control command',
    async (signal) => {
      const qmp = await Qmp.connect(options.directory, options.socketName, signal);
      try {
        return await talk(qmp);
      } finally {
        qmp.close();
      }
    },
    options.signal,
  );
}
