import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientFor, connectionOf, wantsJson } from '../cli.ts';
import { json, properties } from '../output/format.ts';

export function addStatusCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('status')
    .description('Show whom commands talk to and what is there.')
    .action(async () => {
      const connection = await connectionOf(cli, command);
      const client = clientFor(connection);
      const [{ version }, environments, images] = await Promise.all([
        client.version(),
        client.environments.list(),
        client.images.list(),
      ]);
      const byState: Record<string, number> = {};
      for (const { state } of environments) byState[state] = (byState[state] ?? 0) + 1;
      if (wantsJson(command)) {
        const { name, baseUrl, master } = connection;
        await cli.io.out(
          json({
            context: name,
            base_url: baseUrl,
            master,
            version,
            environments_by_state: byState,
            images: images.length,
          }),
        );
        return;
      }
      const states = Object.entries(byState).map(([state, count]) => `${count} ${state}`);
      await cli.io.out(
        properties({
          context: connection.name,
          url: connection.baseUrl,
          version,
          environments: states.length === 0 ? 'none' : states.join(', '),
          images: images.map((image) => image.name).join(', ') || 'none',
        }),
      );
    });
  addGlobalOptions(command);
}
