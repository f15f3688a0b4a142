import { Ticket, type TicketRequest } from '@fuse/contract';
import { environmentPath } from './environment-path.ts';
import type { CallOptions } from './run-outputs.ts';
import { type Query, queried, type Transport } from './transport.ts';
import type { MessageSocket } from './web-sockets.ts';

export interface SocketCall {
  environmentId: string;
  /** Below the environment. */
  path: string;
  query: Query;
  /** What a ticket is to be good for where headers cannot be sent. */
  ticket: TicketRequest;
  /** Where somebody else asks for tickets: this client may have no token then. */
  takeTicket?: (() => Promise<string>) | undefined;
}

export async function openSocket(
  transport: Transport,
  call: SocketCall,
  { signal }: CallOptions = {},
): Promise<MessageSocket> {
  const { webSockets, token } = transport.config;
  const url = queried(
    new URL(`${environmentPath(call.environmentId)}${call.path}`, transport.config.baseUrl),
    call.query,
  );
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const options = signal === undefined ? {} : { signal };
  if (call.takeTicket !== undefined) url.searchParams.set('ticket', await call.takeTicket());
  else if (token !== undefined && !webSockets.carriesHeaders)
    url.searchParams.set('ticket', (await createTicket(transport, call.environmentId, call.ticket, options)).ticket);
  const headers = call.takeTicket === undefined ? transport.headersOf() : new Headers();
  return await webSockets.open(url, { headers: Object.fromEntries(headers), ...options });
}

export function createTicket(
  transport: Transport,
  environmentId: string,
  request: TicketRequest,
  options: CallOptions = {},
): Promise<Ticket> {
  return transport.json(Ticket, {
    method: 'POST',
    path: `${environmentPath(environmentId)}/tickets`,
    json: request,
    // One that nobody uses goes by itself.
    repeat: 'freely',
    ...options,
  });
}
