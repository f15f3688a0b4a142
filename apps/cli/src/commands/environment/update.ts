import { type Command, Option } from 'commander';
import { parseDurationSeconds, parseSecondsOrDuration } from '../../args/duration.ts';
import { gatherLabel } from '../../args/key-value.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { usageError } from '../../cli-error.ts';
import { environmentText } from '../../output/environment-text.ts';
import { json } from '../../output/format.ts';

interface Flags {
  expires?: number;
  idleTimeout?: number;
  idleAction?: 'destroy' | 'pause';
  autoResume?: boolean;
  checkpointInterval?: number;
  checkpointKeep?: number;
  tag?: Record<string, string>;
  tags: boolean;
}

const AFTER_HELP = `
Examples:
  fuse environment update fuse-demo --expires 2h                      two hours from now
  fuse environment update fuse-demo --idle-timeout 10m --idle-action pause --auto-resume
  fuse environment update fuse-demo --tag team=blue --tag owner=ann   in place of the tags that it has
  fuse environment update fuse-demo --no-tags
`;

export function addEnvironmentUpdateCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('update')
    .description('Change how long an environment lives, what it does when idle, or its tags; what is not named stays.')
    .argument('<id>')
    .option('--expires <time>', 'its lifetime ends 30m, 4h … from now', parseDurationSeconds)
    .option('--idle-timeout <time>', 'when no command ran for 10m, 1h …; 0: never', parseSecondsOrDuration)
    .addOption(new Option('--idle-action <action>', 'what then').choices(['destroy', 'pause']))
    .option('--auto-resume', 'a command resumes it when it is paused')
    .option('--no-auto-resume', 'it does not')
    .option('--checkpoint-interval <time>', 'take a snapshot every 30s, 5m …; 0: never', parseSecondsOrDuration)
    .option('--checkpoint-keep <n>', 'keep so many of them, the newest', parsePositiveInt)
    .option('--tag <key=value>', 'its tags, all of them; may be repeated', gatherLabel)
    .option('--no-tags', 'no tags any more')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, flags: Flags) => {
      const request = {
        expires_in_seconds: flags.expires,
        idle_timeout_seconds: flags.idleTimeout,
        idle_action: flags.idleAction,
        auto_resume: flags.autoResume,
        checkpoint_interval_seconds: flags.checkpointInterval,
        checkpoint_keep: flags.checkpointKeep,
        labels: flags.tags ? flags.tag : {},
      };
      if (Object.values(request).every((value) => value === undefined))
        throw usageError('nothing to change', { hint: 'fuse environment update --help' });
      const client = await clientOf(cli, command);
      const environment = await client.environments.update(id, request);
      await cli.io.out(wantsJson(command) ? json(environment) : environmentText(environment));
    });
  addGlobalOptions(command);
}
