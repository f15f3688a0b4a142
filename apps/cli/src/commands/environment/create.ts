import { randomBytes } from 'node:crypto';
import type { EnvironmentSpec } from '@fuse/sdk';
import type { Command } from 'commander';
import { parseDurationSeconds } from '../../args/duration.ts';
import { gatherEnv, gatherLabel } from '../../args/key-value.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { environmentText } from '../../output/environment-text.ts';
import { json } from '../../output/format.ts';

interface Flags {
  taskId?: string;
  image?: string;
  cpus?: number;
  ramMb?: number;
  storageGb?: number;
  host?: string;
  label?: Record<string, string>;
  maxRuntime?: number;
  env?: Record<string, string>;
}

export function addEnvironmentCreateCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('create')
    .description('Start a microVM that stays; done when it is running.')
    .option('--task-id <id>', 'the task it is for; its id is made from it (default: made up)')
    .option('--image <name>', 'image to start from (see `fuse image list`)')
    .option('--cpus <n>', 'virtual CPUs', parsePositiveInt)
    .option('--ram-mb <n>', 'memory in MB', parsePositiveInt)
    .option('--storage-gb <n>', 'writable disk in GB', parsePositiveInt)
    .option('--host <id>', 'on this host and no other')
    .option('--label <key=value>', 'only on a host that carries this label; may be repeated', gatherLabel)
    .option('--max-runtime <time>', 'destroy it after 30m, 4h … (default 2h)', parseDurationSeconds)
    .option('--env <KEY[=value]>', 'a variable of every command in it; may be repeated', gatherEnv(cli.env))
    .addHelpText(
      'after',
      '\nExample:\n  fuse environment create --task-id demo && fuse environment exec fuse-demo -- uname -a\n',
    )
    .action(async (flags: Flags) => {
      const client = await clientOf(cli, command);
      const spec: EnvironmentSpec = {
        image: flags.image,
        cpus: flags.cpus,
        ram_mb: flags.ramMb,
        storage_gb: flags.storageGb,
        host_id: flags.host,
        labels: flags.label,
        max_runtime_seconds: flags.maxRuntime,
      };
      const task_id = flags.taskId ?? `task-${randomBytes(6).toString('hex')}`;
      const environment = await client.environments.create({ task_id, spec, env: flags.env });
      await cli.io.out(wantsJson(command) ? json(environment) : environmentText(environment));
    });
  addGlobalOptions(command);
}
