/** A connection of the orchestrator's to a TCP server in a guest. */
import type { Socket } from 'node:net';
import { invalidField } from '@fuse/contract';
import { HOST_TUNNEL_PROTOCOL, tunnelBytes, tunnelEnd, tunnelFrames, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import type { GuestTunnel } from '../guest/guest.ts';
import type { HttpParts } from './server.ts';
import type { Upgrades } from './upgrades.ts';

const Port = z.coerce.number().int().min(1).max(65_535);

export function portTunnels(upgrades: Upgrades, { vms }: Pick<HttpParts, 'vms'>): void {
  upgrades.on('/v1/vms/:id/ports/:port/connect', HOST_TUNNEL_PROTOCOL, async ({ params, signal, accept }) => {
    const id = VmId.safeParse(params.id);
    if (!id.success) throw invalidField('id', id.error.issues[0]?.message ?? 'is not valid');
    const port = Port.safeParse(params.port);
    if (!port.success) throw invalidField('port', 'must be a number from 1 to 65535');
    const tunnel = await vms.get(id.data).withGuest((guest) => guest.tunnel(port.data, signal));
    await relay(accept(), tunnel);
  });
}

/** Each side ends for itself. Returns once both have; throws, the connection cut without its end, when either was cut. */
async function relay(socket: Socket, tunnel: GuestTunnel): Promise<void> {
  const up = sendUp(socket, tunnel).catch(() => tunnel.abort()); // shows in what comes down
  for await (const bytes of tunnel.bytes())
    for (const frame of tunnelFrames(bytes)) if (!socket.write(frame)) await drained(socket);
  socket.end(tunnelEnd());
  await tunnel.closed();
  await up;
}

async function sendUp(socket: Socket, tunnel: GuestTunnel): Promise<void> {
  for await (const bytes of tunnelBytes(socket.iterator({ destroyOnReturn: false }))) await tunnel.write(bytes);
  tunnel.end();
  socket.resume(); // so that its close is noticed
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
