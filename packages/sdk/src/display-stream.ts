import { VNC_PROTOCOL } from '@fuse/contract';
import { environmentPath } from './environment-path.ts';
import { FuseError } from './errors.ts';
import { withRetries } from './retry.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';
import type { ByteConnection } from './web-sockets.ts';

export async function openDisplay(
  transport: Transport,
  environmentId: string,
  { signal }: CallOptions,
): Promise<ByteConnection> {
  const { webSockets, baseUrl, retries, random } = transport.config;
  const { upgrade } = webSockets;
  if (upgrade === undefined)
    throw new FuseError(
      "a display's stream needs Node: give FuseClient `webSockets: nodeWebSockets()` of @fuse/sdk/node",
    );
  const url = new URL(`${environmentPath(environmentId)}/computer/stream`, baseUrl);
  // Nothing was said to the display yet.
  return await withRetries({ repeat: 'freely', retries, random, signal }, () =>
    upgrade(url, VNC_PROTOCOL, { headers: Object.fromEntries(transport.headersOf()), signal }),
  );
}
