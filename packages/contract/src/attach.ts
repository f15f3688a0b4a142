/**
 * Terminals, and tunnels to ports. A terminal session is an exec with `tty`: its id is the session's, its log is the scrollback, it outlives every connection.
 *
 *   GET /v1/environments/{id}/attach?tty=1&rows=24&cols=80&cmd=top&cmd=-d1[&session=ID][&scrollback=BYTES][&user=][&cwd=][&ticket=]
 *     `Upgrade: fuse-attach/1` (api.md section 3): 101, then frames of frames.ts. Without `session` the shell is this connection's own and is killed when
 *       that ends, as published clients expect; it gets no `open` frame. With one: attached to that session, which is begun when there is none, and which lives on.
 *     `Upgrade: websocket`: binary messages of the same frames. Always a session (a fresh id when none is given), told in the `open` frame, the first.
 *   Size: what every viewer can show, the smallest rows and the smallest cols of those attached; when the last one leaves it stays.
 *   Several may type; what they type is taken in the order of its arrival. A viewer that takes nothing for 10 s holds nobody up any more and is told of the
 *   gap it has when it goes on.
 *
 *   GET /v1/environments/{id}/ports/{port}/connect   to the TCP server on that port of the guest's loopback
 *     `Upgrade: fuse-tunnel/1`: 101, then the raw bytes of one connection, half-close included.
 *     `Upgrade: websocket`: binary messages are bytes; the text message `end` says that no more bytes come from its sender.
 *     Before the 101: 404, 409 not running, 502 `unavailable` details.reason=connection_refused when nothing listens.
 *
 *   POST /v1/environments/{id}/tickets TicketRequest -> 201 Ticket. One WebSocket may be opened with it by `?ticket=`, without any other credential,
 *     within its lifetime, for what it is for. It is stored hashed, and gone once used.
 *
 *   How a WebSocket is closed by the server: `webSocketClose`. An error that comes after the 101: 4000 + the status that its answer would have had, and
 *   `code: message` as the reason. A raw upgrade says nothing: it ends, after the exit frame or without one.
 */
import { z } from 'zod';
import { ExecId, TerminalSize, UserName } from './exec.ts';
import { absentIfNull, GuestPath, Timestamp } from './primitives.ts';

export const ATTACH_PROTOCOL = 'fuse-attach/1';
export const TUNNEL_PROTOCOL = 'fuse-tunnel/1';
/** The text message that half-closes a tunnel over WebSocket. */
export const TUNNEL_END = 'end';
export const DEFAULT_SCROLLBACK_BYTES = 262_144;
export const MAX_SCROLLBACK_BYTES = 4_194_304;
export const TICKET_DEFAULT_SECONDS = 30;
export const TICKET_MAX_SECONDS = 300;

export const webSocketClose = {
  /** The exit was told, or both directions of a tunnel have ended. */
  done: 1000,
  /** The environment is paused or destroyed, as the reason says. */
  gone: 1001,
  /** A text message where there is none. */
  notBinary: 1003,
  /** A frame that cannot be read. */
  badFrame: 1008,
  tooBig: 1009,
  /** The VM, or the connection to its port, was lost: no exit comes. */
  lost: 1011,
  /** The server stops; another one goes on with what there is. */
  restart: 1012,
} as const;

export const AttachOptions = z.object({
  session: ExecId.optional(),
  size: TerminalSize,
  /** Empty: a login shell. */
  cmd: z.array(z.string()).max(4096),
  scrollbackBytes: z.number().int().min(0).max(MAX_SCROLLBACK_BYTES),
  user: UserName.optional(),
  cwd: GuestPath.or(z.literal('/')).optional(),
});
export type AttachOptions = z.infer<typeof AttachOptions>;

export const TicketRequest = z.object({
  for: z.enum(['attach', 'exec', 'port']),
  /** Of `attach`: that session only. Of `exec`: the exec's id, required. */
  session: absentIfNull(ExecId),
  /** Of `port`, required. */
  port: absentIfNull(z.number().int().min(1).max(65_535)),
  ttl_seconds: absentIfNull(z.number().int().min(1).max(TICKET_MAX_SECONDS)),
});
export type TicketRequest = z.infer<typeof TicketRequest>;
export const Ticket = z.object({ ticket: z.string(), expires_at: Timestamp });
export type Ticket = z.infer<typeof Ticket>;
