import { ATTACH_PROTOCOL, AttachOptions, Ticket, TUNNEL_PROTOCOL } from '@fuse/contract';
import { z } from 'zod';
import type { Operations } from '../operation.ts';

const side = z.number().int().min(1).max(65_535);
const ticketed = { ticket: z.string() };

export const connectionOperations: Operations = {
  'GET /v1/environments/:id/attach': {
    tag: 'exec',
    summary: 'A terminal in the environment',
    upgrade: [ATTACH_PROTOCOL, 'websocket'],
    query: {
      tty: z.literal('1'),
      session: AttachOptions.shape.session,
      cmd: z.array(z.string()),
      user: AttachOptions.shape.user,
      cwd: AttachOptions.shape.cwd,
      rows: side,
      cols: side,
      scrollback: z.number().int().min(0),
      ...ticketed,
    },
    answers: {},
  },
  'GET /v1/environments/:id/execs/:exec_id/connect': {
    tag: 'exec',
    summary: 'Both ways with a command: its output from an offset, its stdin',
    upgrade: ['websocket'],
    query: { offset: z.number().int().min(0), tail: z.number().int().min(0), ...ticketed },
    answers: {},
  },
  'GET /v1/environments/:id/ports/:port/connect': {
    tag: 'ports',
    summary: 'A TCP connection to a port of the environment',
    upgrade: [TUNNEL_PROTOCOL, 'websocket'],
    query: ticketed,
    answers: {},
  },
  'POST /v1/environments/:id/tickets': {
    tag: 'exec',
    summary: 'A ticket that opens one WebSocket, once',
    answers: { 201: Ticket },
  },
};
