/** A request that asks for an upgrade which its route does not have is an ordinary one (RFC 9110, 7.8): parsed again, without the wish. */
import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/** Headers that only mean something together with the upgrade. */
const OF_THE_UPGRADE = new Set(['upgrade', 'http2-settings']);

/** `head`: what came behind the request's own head, its body first. */
export function replayRequest(server: Server, request: IncomingMessage, socket: Socket, head: Uint8Array): void {
  const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`];
  for (let at = 0; at + 1 < request.rawHeaders.length; at += 2) {
    const name = request.rawHeaders[at] ?? '';
    const value = request.rawHeaders[at + 1] ?? '';
    if (OF_THE_UPGRADE.has(name.toLowerCase())) continue;
    const kept = name.toLowerCase() === 'connection' ? withoutUpgrade(value) : value;
    if (kept !== '' || value === '') lines.push(`${name}: ${kept}`);
  }
  const again = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  socket.unshift(Buffer.concat([again, head]));
  server.emit(socket instanceof TLSSocket ? 'secureConnection' : 'connection', socket);
}

const withoutUpgrade = (connection: string): string =>
  connection
    .split(',')
    .filter((token) => !OF_THE_UPGRADE.has(token.trim().toLowerCase()))
    .join(',');
