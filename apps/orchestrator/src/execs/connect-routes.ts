import { AppError } from '@fuse/contract';
import { z } from 'zod';
import type { App } from '../http/http-server.ts';
import { WEBSOCKET } from '../http/upgrade-route.ts';
import type { Tickets } from '../tickets/tickets.ts';
import { connect } from './connect.ts';
import type { ConnectParts } from './connect-start.ts';

const PATH = '/v1/environments/:id/execs/:exec_id/connect';
const params = z.object({ id: z.string(), exec_id: z.string() });

export function registerConnectRoutes(app: App, parts: ConnectParts & { tickets: Tickets }): void {
  app.get(PATH, { config: { scope: 'exec' }, schema: { params } }, async () => {
    throw new AppError('invalid_argument', 'connect requires a WebSocket', {
      details: { field: 'Upgrade' },
      hint: '…/log?follow=1 is the output alone, over plain HTTP.',
    });
  });
  app.upgrades.add({
    path: PATH,
    protocols: [WEBSOCKET],
    scope: 'exec',
    redeemTicket: (ticket, { params: { id = '', exec_id } }) =>
      parts.tickets.redeem(ticket, id, { for: 'exec', session: exec_id }),
    handle: (request) => connect(parts, request),
  });
}
