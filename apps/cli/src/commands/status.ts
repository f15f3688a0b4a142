import { type EnvironmentInfo, FuseApiError } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientFor, connectionOf, wantsJson } from '../cli.ts';
import { json, properties } from '../output/format.ts';

const MOST_HOSTS = 200;

export function addStatusCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('status')
    .description('Show whom commands talk to and what is there.')
    .option('--all', 'also the environments that are not on the active host')
    .addHelpText('after', '\nExample:\n  fuse status -o json | jq .environments_by_state.running\n')
    .action(async ({ all }: { all?: true }) => {
      const connection = await connectionOf(cli, command);
      const client = clientFor(connection);
      const { activeHost } = connection;
      const hostId = all === true ? undefined : activeHost;
      const [{ version }, environments, hosts, images] = await Promise.all([
        client.version(),
        allowed(client.environments.list(hostId === undefined ? {} : { hostId })),
        allowed(client.hosts.listPage({ limit: MOST_HOSTS })),
        allowed(client.images.list()),
      ]);
      const byState: Record<string, number> = {};
      for (const { state } of environments ?? []) byState[state] = (byState[state] ?? 0) + 1;
      const hostCount = hosts?.hosts.length ?? 0;
      const isHostCountComplete = hosts !== undefined && hosts.nextCursor === undefined;
      const endpoints = runningEndpoints(environments ?? []);
      if (wantsJson(command)) {
        await cli.io.out(
          json({
            context: connection.name,
            base_url: connection.baseUrl,
            master: connection.master,
            tenant: connection.tenant,
            active_host: activeHost,
            version,
            host_count: hostCount,
            host_count_complete: isHostCountComplete,
            environments_by_state: byState,
            environment_scope: hostId === undefined ? 'all' : 'active_host',
            running_endpoints: endpoints.length === 0 ? undefined : endpoints,
            images: images?.length,
          }),
        );
        return;
      }
      const states = Object.entries(byState).map(([state, count]) => `${count} ${state}`);
      const scope = hostId === undefined ? '' : ` (on ${hostId}; --all: on every host)`;
      await cli.io.out(
        properties({
          context: connection.name,
          url: connection.baseUrl,
          version,
          tenant: connection.tenant,
          'active host': activeHost ?? 'none',
          hosts: hosts === undefined ? undefined : `${hostCount}${isHostCountComplete ? '' : ' or more'}`,
          environments: environments === undefined ? undefined : `${states.join(', ') || 'none'}${scope}`,
          endpoints: endpoints.map(({ url }) => url).join(', ') || undefined,
          images: images === undefined ? undefined : images.map((image) => image.name).join(', ') || 'none',
        }),
      );
    });
  addGlobalOptions(command);
}

/** Undefined where this credential may not look. */
async function allowed<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof FuseApiError && error.status === 403) return undefined;
    throw error;
  }
}

const runningEndpoints = (environments: readonly EnvironmentInfo[]) =>
  environments
    .filter(({ state }) => state === 'running')
    .flatMap(({ id, endpoints = [] }) => endpoints.map((endpoint) => ({ vm_id: id, ...endpoint })));
