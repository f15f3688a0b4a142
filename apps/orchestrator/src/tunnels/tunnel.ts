/** A connection to a TCP server in an environment, relayed byte for byte with its half-closes (contract's attach.ts). */
import { AppError, invalidField, webSocketClose } from '@fuse/contract';
import { TunnelCut, tunnelBytes, tunnelEnd, tunnelFrames } from '@fuse/host-protocol';
import { noteLoss } from '../environments/note-loss.ts';
import type { ConnectParts } from '../execs/connect-start.ts';
import { inUse } from '../execs/in-use.ts';
import { persistently } from '../hosts/host-retries.ts';
import type { Upgraded } from '../hosts/host-upgrade.ts';
import { done, EndedBy } from '../http/endings.ts';
import type { Ending, Peer } from '../http/peer.ts';
import type { UpgradeRequest } from '../http/upgrade-route.ts';
import { writeWithRoom } from '../http/write-with-room.ts';

export async function tunnel({ context, environments }: ConnectParts, request: UpgradeRequest): Promise<Ending> {
  const { params, signal } = request;
  const port = portOf(params.port ?? '');
  const found = await environments.find(request.caller.tenantId, params.id ?? '');
  const row = await environments.ready(found, signal);
  using _use = inUse(context.db.query, row);
  let far: Upgraded | undefined;
  try {
    const client = await context.hosts.client(row.host_id);
    const open = () => client.tunnel(row.vm_id, port, signal);
    far = await persistently(context.hostRetryMs, open, signal).catch((error: unknown) => {
      throw asOpenError(error, port);
    });
    await relay(request.accept(), far);
    return done('both sides ended');
  } catch (error) {
    await noteLoss(context, row, error);
    throw error;
  } finally {
    far?.socket.destroy(); // without its end the server's connection is reset
  }
}

export function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535) throw invalidField('port', 'must be 1 to 65535');
  return port;
}

async function relay(peer: Peer, { socket, head }: Upgraded): Promise<void> {
  if (head.length > 0) socket.unshift(head);
  const up = async () => {
    for await (const bytes of peer.received())
      for (const frame of tunnelFrames(bytes)) await writeWithRoom(socket, frame);
    socket.end(tunnelEnd());
  };
  const down = async () => {
    try {
      for await (const bytes of tunnelBytes(socket.iterator({ destroyOnReturn: false }))) await peer.send(bytes);
    } catch (cause) {
      if (!(cause instanceof TunnelCut || socket.destroyed)) throw cause;
      throw new EndedBy({ code: webSocketClose.lost, reason: 'the connection to the port was reset' });
    }
    peer.sendEnd();
    socket.resume(); // so that its close is noticed
  };
  await Promise.all([up(), down()]);
}

function asOpenError(error: unknown, port: number): unknown {
  if (!(error instanceof AppError)) return error;
  if (error.details?.reason === 'connection_refused')
    return new AppError('unavailable', `nothing listens on port ${port}`, {
      status: 502,
      details: { ...error.details, port: String(port) },
      hint: 'The server has to listen on 127.0.0.1, ::1 or all addresses of the environment.',
      cause: error,
    });
  return error.code === 'not_found' ? new AppError('vm_lost', error.message, { cause: error }) : error;
}
