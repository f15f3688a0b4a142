import type { Command } from 'commander';
import { parseDurationSeconds } from '../../args/duration.ts';
import { gatherLabel } from '../../args/key-value.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json } from '../../output/format.ts';

interface Flags {
  expires?: number;
  uses?: number;
  region?: string;
  label?: Record<string, string>;
}

const AFTER_HELP = `
The new machine needs no more than this token and our address: its host agent registers itself with it.

Example:
  fuse hosts join-token --expires 10m --label disk=ssd > join-token
`;

export function addHostJoinTokenCommand(group: Command, cli: Cli): void {
  const command = group
    .command('join-token')
    .description('Make a token that a new host agent joins with; it is shown this one time.')
    .option('--expires <time>', 'good for 10m, 24h … (default 1h)', parseDurationSeconds)
    .option('--uses <n>', 'how many hosts may join with it (default 1)', parsePositiveInt)
    .option('--region <name>', 'the region of those hosts')
    .option('--label <key=value>', 'a label of those hosts; may be repeated', gatherLabel)
    .addHelpText('after', AFTER_HELP)
    .action(async ({ expires, uses, region, label }: Flags) => {
      const client = await clientOf(cli, command);
      const made = await client.hosts.createJoinToken({ expires_in_seconds: expires, uses, region, labels: label });
      if (wantsJson(command)) {
        await cli.io.out(json(made));
        return;
      }
      await cli.io.out(`${made.token}\n`);
      cli.io.say(`good for ${made.uses === 1 ? 'one host' : `${made.uses} hosts`}, until ${made.expires_at}`);
    });
  addGlobalOptions(command);
}
