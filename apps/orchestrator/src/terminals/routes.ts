import { AppError, ATTACH_PROTOCOL } from '@fuse/contract';
import { z } from 'zod';
import type { ConnectParts } from '../execs/connect-start.ts';
import type { App } from '../http/http-server.ts';
import { WEBSOCKET } from '../http/upgrade-route.ts';
import type { Tickets } from '../tickets/tickets.ts';
import { attach } from './attach.ts';

const PATH = '/v1/environments/:id/attach';
const params = z.object({ id: z.string() });

export function registerTerminalRoutes(app: App, parts: ConnectParts & { tickets: Tickets }): void {
  app.get(PATH, { config: { scope: 'exec' }, schema: { params } }, async () => {
    throw new AppError('invalid_argument', `attach requires Upgrade: ${ATTACH_PROTOCOL}`, {
      details: { field: 'Upgrade' },
      hint: 'A browser opens a WebSocket here.',
    });
  });
  app.upgrades.add({
    path: PATH,
    protocols: [ATTACH_PROTOCOL, WEBSOCKET],
    scope: 'exec',
    redeemTicket: (ticket, { params: { id = '' }, query }) =>
      parts.tickets.redeem(ticket, id, { for: 'attach', session: query.get('session') ?? undefined }),
    handle: (request) => attach(parts, request),
  });
}
