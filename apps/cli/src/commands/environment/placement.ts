import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json, table } from '../../output/format.ts';

export function addEnvironmentPlacementCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('placement')
    .description('Show why an environment is on its host, or on none yet.')
    .argument('<id>')
    .addHelpText('after', '\nExample:\n  fuse environment placement fuse-demo      also while it waits for room\n')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const report = await client.environments.placement(id);
      if (wantsJson(command)) {
        await cli.io.out(json(report));
        return;
      }
      if (report.reason !== undefined) cli.io.say(report.reason);
      if (report.hosts.length === 0) {
        cli.io.say('no hosts were looked at');
        return;
      }
      const rows = report.hosts.map(({ host_id, score, reason = '' }) => [
        host_id === report.host_id ? '*' : '',
        host_id,
        score === undefined ? '' : String(score),
        reason,
      ]);
      await cli.io.out(table(['', 'HOST', 'SCORE', 'WHY NOT'], rows));
    });
  addGlobalOptions(command);
}
