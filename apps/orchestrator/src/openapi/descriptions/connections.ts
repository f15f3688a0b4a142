import { ATTACH_PROTOCOL, AttachOptions, Ticket, TUNNEL_PROTOCOL } from '@fuse/contract';
import type { Operations } from '../operation.ts';

export const connectionOperations: Operations = {
  'GET /v1/environments/:id/attach': {
    tag: 'exec',
    summary: 'A terminal in the environment',
    upgrade: [ATTACH_PROTOCOL, 'websocket'],
    query: AttachOptions.shape,
    answers: {},
  },
  'GET /v1/environments/:id/execs/:exec_id/connect': {
    tag: 'exec',
    summary: 'Both ways with a command: its output from an offset, its stdin',
    upgrade: ['websocket'],
    answers: {},
  },
  'GET /v1/environments/:id/ports/:port/connect': {
    tag: 'ports',
    summary: 'A TCP connection to a port of the environment',
    upgrade: [TUNNEL_PROTOCOL, 'websocket'],
    answers: {},
  },
  'POST /v1/environments/:id/tickets': {
    tag: 'exec',
    summary: 'A ticket that opens one WebSocket, once (`?ticket=`)',
    answers: { 201: Ticket },
  },
};
