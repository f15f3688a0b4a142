import { randomBytes } from 'node:crypto';
import type { EnvironmentSpec } from '@fuse/sdk';
import { type Command, Option } from 'commander';
import { parseDurationSeconds } from '../../args/duration.ts';
import { gatherEnv, gatherLabel } from '../../args/key-value.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { parseSizeGiB, parseSizeMiB } from '../../args/size.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { longCall } from '../../long-call.ts';
import { environmentText } from '../../output/environment-text.ts';
import { json } from '../../output/format.ts';

interface Flags {
  taskId?: string;
  image?: string;
  cpus?: number;
  ram?: number;
  disk?: number;
  ramMb?: number;
  storageGb?: number;
  host?: string;
  label?: Record<string, string>;
  maxRuntime?: number;
  idleTimeout?: number;
  idleAction?: 'destroy' | 'pause';
  autoResume?: true;
  seedSnapshot?: string;
  fallback?: 'disk';
  checkpointInterval?: number;
  checkpointKeep?: number;
  env?: Record<string, string>;
}

const AFTER_HELP = `
Examples:
  fuse environment create --task-id demo && fuse environment exec fuse-demo -- uname -a
  fuse environment create --task-id again --seed-snapshot SNAPSHOT        go on from a snapshot, also of one that is gone
  fuse environment create --idle-timeout 10m --idle-action pause --auto-resume   rests when nobody uses it
  fuse environment create --checkpoint-interval 5m --checkpoint-keep 2    a snapshot every 5 minutes, the last two kept
`;

export function addEnvironmentCreateCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('create')
    .description('Start a microVM that stays; done when it is running.')
    .option('--task-id <id>', 'the task it is for; its id is made from it (default: made up)')
    .option('--image <name>', 'image to start from (see `fuse image list`)')
    .option('--cpus <n>', 'virtual CPUs', parsePositiveInt)
    .option('--ram <size>', 'memory, such as 512M or 2G', parseSizeMiB)
    .option('--disk <size>', 'writable disk, such as 2G', parseSizeGiB)
    .addOption(new Option('--ram-mb <n>', 'memory in MB').argParser(parsePositiveInt).conflicts('ram'))
    .addOption(new Option('--storage-gb <n>', 'writable disk in GB').argParser(parsePositiveInt).conflicts('disk'))
    .option('--host <id>', 'on this host and no other')
    .option('--label <key=value>', 'only on a host that carries this label; may be repeated', gatherLabel)
    .option('--max-runtime <time>', 'destroy it after 30m, 4h … (default 2h)', parseDurationSeconds)
    .option('--idle-timeout <time>', 'when no command ran for 10m, 1h … (at least 1m)', parseDurationSeconds)
    .addOption(new Option('--idle-action <action>', 'what then (default destroy)').choices(['destroy', 'pause']))
    .option('--auto-resume', 'a command resumes it when it is paused')
    .option('--seed-snapshot <id>', 'go on from this snapshot, in its image and shape')
    .addOption(
      new Option(
        '--fallback <part>',
        'when its memory fits no host any more (other VMM, CPU or kernel), start from its disk alone',
      ).choices(['disk']),
    )
    .option('--checkpoint-interval <time>', 'take a snapshot every 30s, 5m … (at least 10s)', parseDurationSeconds)
    .option('--checkpoint-keep <n>', 'keep so many of them, the newest (default 3)', parsePositiveInt)
    .option('--env <KEY[=value]>', 'a variable of every command in it; may be repeated', gatherEnv(cli.env))
    .addHelpText('after', AFTER_HELP)
    .action(async (flags: Flags) => {
      const client = await clientOf(cli, command);
      const spec: EnvironmentSpec = {
        image: flags.image,
        cpus: flags.cpus,
        ram_mb: flags.ram ?? flags.ramMb,
        storage_gb: flags.disk ?? flags.storageGb,
        host_id: flags.host,
        labels: flags.label,
        max_runtime_seconds: flags.maxRuntime,
        idle_timeout_seconds: flags.idleTimeout,
      };
      const task_id = flags.taskId ?? `task-${randomBytes(6).toString('hex')}`;
      const request = {
        task_id,
        spec,
        env: flags.env,
        seed_snapshot_id: flags.seedSnapshot,
        fallback: flags.fallback,
        idle_action: flags.idleAction,
        auto_resume: flags.autoResume,
        checkpoint_interval_seconds: flags.checkpointInterval,
        checkpoint_keep: flags.checkpointKeep,
      };
      const environment = await longCall(
        cli,
        { doing: `starting a microVM for task ${task_id}`, lookAgain: `fuse environment list --task-id ${task_id}` },
        (signal) => client.environments.create(request, { signal }),
      );
      await cli.io.out(wantsJson(command) ? json(environment) : environmentText(environment));
    });
  addGlobalOptions(command);
}
