/** Calls to the gateway's `control.sock` (host-protocol/src/gateway.ts). The gateway is ours, and answers at once; what it says is bounded and parsed all the same. */
import http from 'node:http';
import { AppError } from '@fuse/contract';
import { type GatewayConfig, GatewayHealth, GatewayReport, GatewayTotals, type GatewayVm } from '@fuse/host-protocol';
import { z } from 'zod';
import { connectUnixSocket } from '../vmm/unix-socket.ts';

export const CONTROL_SOCKET = 'control.sock';
const DEADLINE_MS = 5_000;
const MAX_ANSWER_BYTES = 16 * 1024 ** 2;

const GatewayList = z.object({ vms: z.array(GatewayTotals) });

export class GatewayClient {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  health = async (): Promise<GatewayHealth> => GatewayHealth.parse(await this.#call('GET', '/health'));
  putConfig = async (config: GatewayConfig): Promise<void> => void (await this.#call('PUT', '/config', config));
  deleteSlot = async (slot: string): Promise<void> => void (await this.#call('DELETE', `/slots/${slot}`));
  /** Rejects with `not_found` when the gateway does not have the slot. */
  putVm = async (id: string, vm: GatewayVm): Promise<void> => void (await this.#call('PUT', `/vms/${id}`, vm));
  list = async (): Promise<GatewayTotals[]> => GatewayList.parse(await this.#call('GET', '/vms')).vms;

  report(id: string): Promise<GatewayReport | undefined> {
    return unlessNotFound(this.#call('GET', `/vms/${id}`).then((body) => GatewayReport.parse(body)));
  }

  deleteVm(id: string): Promise<GatewayTotals | undefined> {
    return unlessNotFound(this.#call('DELETE', `/vms/${id}`).then((body) => GatewayTotals.parse(body)));
  }

  async #call(method: string, path: string, body?: unknown): Promise<unknown> {
    const text = body === undefined ? '' : JSON.stringify(body);
    const signal = AbortSignal.timeout(DEADLINE_MS);
    let answer: { status: number; text: string };
    try {
      const socket = await connectUnixSocket(this.#directory, CONTROL_SOCKET);
      answer = await new Promise((resolve, reject) => {
        const headers = {
          host: 'gateway',
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(text),
        };
        const options = { method, path, headers, signal, createConnection: () => socket };
        http
          .request(options, (response) =>
            whole(response).then((all) => resolve({ status: response.statusCode ?? 0, text: all }), reject),
          )
          .on('error', reject)
          .end(text);
      });
    } catch (cause) {
      throw new AppError('unavailable', 'the gateway does not answer', { cause, retryAfterSeconds: 1 });
    }
    if (answer.status === 404) throw new AppError('not_found', `the gateway does not know ${path}`);
    if (answer.status < 200 || answer.status > 299)
      throw new AppError(
        'internal',
        `the gateway refused ${method} ${path}: ${answer.status} ${answer.text.slice(0, 300)}`,
      );
    return answer.text === '' ? undefined : JSON.parse(answer.text);
  }
}

async function whole(response: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_ANSWER_BYTES) throw new Error('the answer is too long');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

async function unlessNotFound<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return undefined;
    throw error;
  }
}
