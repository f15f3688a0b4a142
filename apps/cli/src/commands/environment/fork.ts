import type { EnvironmentInfo } from '@fuse/sdk';
import type { Command } from 'commander';
import { addNetworkOptions, type NetworkFlags, networkOf } from '../../args/network.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { longCall } from '../../long-call.ts';
import { environmentHeadings, environmentRow, environmentText } from '../../output/environment-text.ts';
import { json, table } from '../../output/format.ts';

interface Flags extends NetworkFlags {
  reuseSnapshot?: string;
  comment?: string;
  count?: number;
}

const AFTER_HELP = `
A fork runs on from where the environment is: processes, memory, files. It is a machine of its own, with its own name,
clock and random numbers; nothing that it does is seen in the environment, which runs on too.

Examples:
  fuse environment fork fuse-demo
  fuse environment fork fuse-demo --count 10 -o json | jq -r '.environments[].id'
  fuse environment fork fuse-demo --reuse-snapshot SNAPSHOT      from then instead of now
`;

export function addEnvironmentForkCommand(parent: Command, cli: Cli): void {
  const command = addNetworkOptions(parent.command('fork'))
    .description('Make one or more environments that go on from where this one is.')
    .argument('<id>')
    .option('--reuse-snapshot <id>', 'a snapshot of it to fork from (default: a new one is taken)')
    .option('--comment <text>', 'on the new snapshot, for people')
    .option('--count <n>', 'so many from one snapshot: all of them or none', parsePositiveInt)
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { reuseSnapshot, comment, count, ...flags }: Flags) => {
      const client = await clientOf(cli, command);
      const request = { reuse_snapshot_id: reuseSnapshot, comment, network: networkOf(flags) };
      const { environments } = client;
      const { answer, forks } = await longCall(
        cli,
        { doing: `forking ${id}`, lookAgain: 'fuse environment list' },
        async (signal): Promise<{ answer: unknown; forks: EnvironmentInfo[] }> => {
          if (count === undefined) {
            const fork = await environments.fork(id, request, { signal });
            return { answer: fork, forks: [fork] };
          }
          const answer = await environments.forkMany(id, { ...request, count }, { signal });
          return { answer, forks: answer.environments };
        },
      );
      const [only] = forks;
      if (wantsJson(command)) await cli.io.out(json(answer));
      else if (only !== undefined && forks.length === 1) await cli.io.out(environmentText(only));
      else await cli.io.out(table(environmentHeadings, forks.map(environmentRow)));
    });
  addGlobalOptions(command);
}
