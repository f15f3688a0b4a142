import type { ListImages } from '@fuse/contract';
import type { HostDirectory } from '../hosts/host-directory.ts';
import type { App } from '../http/http-server.ts';

export function registerImageRoutes(app: App, hosts: HostDirectory): void {
  /** What some host can boot, by name. */
  app.get(
    '/v1/images',
    { config: { scope: ['environments:read', 'environments:write', 'runs', 'hosts:read'] } },
    async (): Promise<ListImages> => ({ images: await hosts.images() }),
  );
}
