import { AppError, TUNNEL_PROTOCOL } from '@fuse/contract';
import { z } from 'zod';
import type { ConnectParts } from '../execs/connect-start.ts';
import type { App } from '../http/http-server.ts';
import { WEBSOCKET } from '../http/upgrade-route.ts';
import type { Tickets } from '../tickets/tickets.ts';
import { portOf, tunnel } from './tunnel.ts';

const PATH = '/v1/environments/:id/ports/:port/connect';
const params = z.object({ id: z.string(), port: z.string() });

export function registerTunnelRoutes(app: App, parts: ConnectParts & { tickets: Tickets }): void {
  app.get(PATH, { config: { scope: 'ports' }, schema: { params } }, async () => {
    throw new AppError('invalid_argument', `a tunnel requires Upgrade: ${TUNNEL_PROTOCOL}, or a WebSocket`, {
      details: { field: 'Upgrade' },
    });
  });
  app.upgrades.add({
    path: PATH,
    protocols: [TUNNEL_PROTOCOL, WEBSOCKET],
    scope: 'ports',
    halfCloses: true,
    redeemTicket: (ticket, { params: { id = '', port = '' } }) =>
      parts.tickets.redeem(ticket, id, { for: 'port', port: portOf(port) }),
    handle: (request) => tunnel(parts, request),
  });
}
