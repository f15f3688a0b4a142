/**
 * Firecracker's API: HTTP over a Unix socket. Each request has a connection of its own, so nothing is held that an adopting host agent would have to wait for. What answers may be
 * in the hands of a guest: an answer is bounded in size and time.
 */
import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { AppError } from '@fuse/contract';
import { withDeadline } from '@fuse/runtime';
import { z } from 'zod';

const MAX_ANSWER_BYTES = 65_536;
const MAX_HEADER_BYTES = 8_192;
const MAX_FAULT_LENGTH = 512;

const Fault = z.object({ fault_message: z.string() });
const InstanceInfo = z.object({ state: z.enum(['Not started', 'Running', 'Paused']) });

export interface ApiOptions {
  connect: () => Promise<Socket>;
  deadlineMs: number;
}

/** How the message begins of what Firecracker has refused: it gives its reason. */
export const REFUSED = 'Firecracker refused';

export type ApiMethod = 'GET' | 'PUT' | 'PATCH';

export class FirecrackerApi {
  readonly #options: ApiOptions;

  constructor(options: ApiOptions) {
    this.#options = options;
  }

  async put(path: string, body: object, signal?: AbortSignal): Promise<void> {
    await this.#call('PUT', path, body, signal);
  }

  async patch(path: string, body: object, signal?: AbortSignal): Promise<void> {
    await this.#call('PATCH', path, body, signal);
  }

  async state(signal?: AbortSignal): Promise<z.infer<typeof InstanceInfo>['state']> {
    const answer = InstanceInfo.safeParse(parseJson(await this.#call('GET', '/', undefined, signal)));
    if (!answer.success) throw new AppError('unavailable', 'Firecracker does not say what state its VM is in');
    return answer.data.state;
  }

  #call(method: ApiMethod, path: string, body: object | undefined, signal: AbortSignal | undefined): Promise<string> {
    const { connect, deadlineMs } = this.#options;
    return withDeadline(
      deadlineMs,
      `Firecracker's answer to ${method} ${path}`,
      async (inner) => {
        const socket = await connect();
        try {
          const response = await send(socket, { method, path, body, signal: inner });
          const text = await bounded(response);
          const status = response.statusCode ?? 0;
          if (status === 200 || status === 204) return text;
          throw new AppError('unavailable', `${REFUSED} ${method} ${path}: ${faultIn(text)}`);
        } finally {
          socket.destroy();
        }
      },
      signal,
    );
  }
}

function send(
  socket: Socket,
  { method, path, body, signal }: { method: ApiMethod; path: string; body: object | undefined; signal: AbortSignal },
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const headers = {
      host: 'localhost',
      accept: 'application/json',
      ...(text === undefined
        ? {}
        : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) }),
    };
    const sent = request({
      method,
      path,
      headers,
      signal,
      maxHeaderSize: MAX_HEADER_BYTES,
      createConnection: () => socket,
    });
    sent.once('error', reject);
    sent.once('response', resolve);
    sent.end(text);
  });
}

async function bounded(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) throw new AppError('unavailable', 'Firecracker answers without end');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function faultIn(text: string): string {
  const fault = Fault.safeParse(parseJson(text));
  return fault.success ? fault.data.fault_message.slice(0, MAX_FAULT_LENGTH) : 'it does not say why';
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
