/** A connection of the orchestrator's to a TCP server in a guest. */
import type { Socket } from 'node:net';
import { invalidField, TUNNEL_PROTOCOL } from '@fuse/contract';
import { VmId } from '@fuse/host-protocol';
import { sleep } from '@fuse/runtime';
import { z } from 'zod';
import type { GuestTunnel } from '../guest/guest.ts';
import type { HttpParts } from './server.ts';
import type { Upgrades } from './upgrades.ts';

const Port = z.coerce.number().int().min(1).max(65_535);
/** A connection that is closed with bytes unread is reset, and its peer may lose what it has not read: it gets so long to close its own end. */
const LINGER_MS = 5_000;

export function portTunnels(upgrades: Upgrades, { vms }: Pick<HttpParts, 'vms'>): void {
  upgrades.on('/v1/vms/:id/ports/:port/connect', TUNNEL_PROTOCOL, async ({ params, signal, accept }) => {
    const id = VmId.safeParse(params.id);
    if (!id.success) throw invalidField('id', id.error.issues[0]?.message ?? 'is not valid');
    const port = Port.safeParse(params.port);
    if (!port.success) throw invalidField('port', 'must be a number from 1 to 65535');
    const tunnel = await vms.get(id.data).withGuest((guest) => guest.tunnel(port.data, signal));
    await relay(accept(), tunnel);
  });
}

/** Returns once the server's bytes are all on their way; throws, the connection reset, when either end was cut. */
async function relay(socket: Socket, tunnel: GuestTunnel): Promise<void> {
  const up = sendUp(socket, tunnel).catch(() => tunnel.abort()); // shows in `bytes`
  try {
    for await (const bytes of tunnel.bytes) if (!socket.write(bytes)) await drained(socket);
  } catch (error) {
    socket.resetAndDestroy();
    throw error;
  }
  socket.end();
  const lingered = new AbortController();
  await Promise.race([up, sleep(LINGER_MS, lingered.signal).catch(() => {})]);
  lingered.abort();
}

/** What comes once nobody takes it any more is read and dropped. */
async function sendUp(socket: Socket, tunnel: GuestTunnel): Promise<void> {
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) await tunnel.write(chunk);
  tunnel.end();
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      socket.off('drain', done);
      socket.off('close', done);
      resolve();
    };
    socket.once('drain', done);
    socket.once('close', done);
    if (socket.destroyed) done();
  });
}
