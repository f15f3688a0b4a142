/** A connection to a host agent that stops being HTTP: `Upgrade: fuse-exec/1`, `fuse-tunnel-frames/1`. */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { AppError } from '@fuse/contract';
import { type HostAddress, type HostRequest, openRequest, readBounded, refusal } from './host-request.ts';

export interface Upgraded {
  socket: Duplex;
  /** What came behind the switch already. */
  head: Buffer;
}

export async function upgrade(host: HostAddress, call: HostRequest, protocol: string): Promise<Upgraded> {
  const { method, path, signal } = call;
  const headers = { ...call.headers, connection: 'Upgrade', upgrade: protocol };
  const request = openRequest(host, { method, path, headers, signal });
  const answer = await new Promise<Upgraded | IncomingMessage>((resolve, reject) => {
    request.once('upgrade', (_response, socket, head) => resolve({ socket, head }));
    request.once('response', resolve);
    request.on('error', reject);
    request.end();
  });
  if (!('socket' in answer && 'head' in answer)) {
    const status = answer.statusCode ?? 0;
    const text = await readBounded(answer);
    if (status >= 200 && status < 300)
      throw new AppError('internal', `host ${host.id} did not switch to ${protocol}`, { cause: text.slice(0, 500) });
    throw refusal(host, status, text);
  }
  const { socket } = answer;
  // Its failures show to whoever reads it; without a listener they would end the process.
  socket.on('error', () => {});
  const onAbort = () => socket.destroy(signal.reason instanceof Error ? signal.reason : undefined);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  socket.once('close', () => signal.removeEventListener('abort', onAbort));
  return answer;
}
