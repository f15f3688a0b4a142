import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf } from '../cli.ts';

export function addMetricsCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('metrics')
    .description('Print the metrics of the orchestrator, as Prometheus reads them. (Of a host: fuse hosts metrics)')
    .addHelpText('after', '\nExample:\n  fuse metrics | grep orchestrator_fleet\n')
    .action(async () => {
      const client = await clientOf(cli, command);
      await cli.io.out(await client.metrics());
    });
  addGlobalOptions(command);
}
