import { randomBytes } from 'node:crypto';
import type { CreateEnvironment, EnvironmentSpec } from '@fuse/sdk';
import { type Command, Option } from 'commander';
import { parseDurationSeconds, parseSecondsOrDuration } from '../../args/duration.ts';
import { gatherEnv, gatherLabel, gatherSecret } from '../../args/key-value.ts';
import { addNetworkOptions, type NetworkFlags, networkOf } from '../../args/network.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { parseSizeGiB, parseSizeMiB } from '../../args/size.ts';
import { gatherExpose, gatherFile, parseHttpCheck } from '../../args/startup.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { manifestText, scriptText, startupFiles } from '../../files/startup-files.ts';
import { longCall } from '../../long-call.ts';
import { environmentText } from '../../output/environment-text.ts';
import { json } from '../../output/format.ts';
import { followStart } from './follow-start.ts';

interface Flags extends NetworkFlags {
  taskId?: string;
  image?: string;
  cpus?: number;
  ram?: number;
  disk?: number;
  ramMb?: number;
  storageGb?: number;
  gpus?: number;
  gpuKind?: string;
  gpuProfile?: string;
  region?: string;
  arch?: string;
  host?: string;
  label?: Record<string, string>;
  tag?: Record<string, string>;
  queueTimeout?: number;
  manifest?: string;
  secret?: Record<string, string>;
  gatewayUrl?: string;
  gatewayToken?: string;
  maxRuntime?: number;
  idleTimeout?: number;
  idleAction?: 'destroy' | 'pause';
  autoResume?: true;
  seedSnapshot?: string;
  fallback?: 'disk';
  checkpointInterval?: number;
  checkpointKeep?: number;
  env?: Record<string, string>;
  file?: Record<string, string>;
  startupScript?: string;
  startupTimeout?: number;
  expose?: CreateEnvironment['expose'];
  healthcheckHttp?: { port: number; path?: string };
  healthcheckExec?: string;
  wait: boolean;
  follow?: true;
}

const AFTER_HELP = `
Examples:
  fuse environment create --task-id demo && fuse environment exec fuse-demo -- uname -a
  fuse environment create --task-id again --seed-snapshot SNAPSHOT        go on from a snapshot, also of one that is gone
  fuse environment create --idle-timeout 10m --idle-action pause --auto-resume   rests when nobody uses it
  fuse environment create --file /workspace/app.py=app.py --startup-script @setup.sh --healthcheck-http 8000/health --expose 8000:web
  fuse environment create --startup-script @install.sh --startup-timeout 1h --follow    shows what it writes, done when it runs
  fuse environment create --tag team=blue --queue-timeout 10m      when all hosts are full, as soon as there is room
  API_KEY=… fuse environment create --secret API_KEY               no process list shows it
  fuse environment create --egress allowlist --allow pypi.org --allow '*.npmjs.org:443'    reaches these, and nothing else
  fuse environment create --checkpoint-interval 5m --checkpoint-keep 2    a snapshot every 5 minutes, the last two kept
`;

export function addEnvironmentCreateCommand(parent: Command, cli: Cli): void {
  const command = addNetworkOptions(parent.command('create'))
    .description('Start a microVM that stays; done when it is running.')
    .option('--task-id <id>', 'the task it is for; its id is made from it (default: made up)')
    .option('--image <name>', 'image to start from (see `fuse image list`)')
    .option('--cpus <n>', 'virtual CPUs', parsePositiveInt)
    .option('--ram <size>', 'memory, such as 512M or 2G', parseSizeMiB)
    .option('--disk <size>', 'writable disk, such as 2G', parseSizeGiB)
    .addOption(new Option('--ram-mb <n>', 'memory in MB').argParser(parsePositiveInt).conflicts('ram'))
    .addOption(new Option('--storage-gb <n>', 'writable disk in GB').argParser(parsePositiveInt).conflicts('disk'))
    .option('--gpus <n>', 'GPUs', parsePositiveInt)
    .option('--gpu-kind <kind>', 'of this kind')
    .option('--gpu-profile <profile>', 'a part of one: a MIG profile such as 1g.10gb')
    .option('--region <name>', 'only on a host of this region')
    .option('--arch <arch>', 'only on a host of this architecture: amd64 or arm64')
    .option('--host <id>', 'on this host and no other')
    .option('--label <key=value>', 'only on a host that carries this label; may be repeated', gatherLabel)
    .option('--tag <key=value>', 'a mark of your own, found again by `list --tag`; may be repeated', gatherLabel)
    .option(
      '--queue-timeout <time>',
      'when there is no room, wait for it so many seconds, or 5m … (default: not at all)',
      parseSecondsOrDuration,
    )
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
    .option('--file <GUEST=LOCAL>', 'put this local file there; may be repeated, 512 KiB in all', gatherFile)
    .option('--secret <NAME[=value]>', 'a secret, found in /fuse/secrets.json; may be repeated', gatherSecret(cli.env))
    .option('--manifest <manifest>', 'found in /fuse/manifest.json: JSON, or base64 of it; @FILE: what is in FILE')
    .option('--gateway-url <url>', 'of an agent of your own in it: recorded')
    .option('--gateway-token <token>', 'what that agent shows there')
    .option('--startup-script <script>', 'run it (with sh -lc) after the files are there; @FILE: what is in FILE')
    .option('--startup-timeout <time>', 'end it after … (default 30s; over 55s with --no-wait)', parseDurationSeconds)
    .option('--expose <PORT[:NAME]>', 'name the tunnel to this port; may be repeated', gatherExpose)
    .addOption(
      new Option('--healthcheck-http <PORT[/path]>', 'it is well while this answers 2xx or 3xx')
        .argParser(parseHttpCheck)
        .conflicts('healthcheckExec'),
    )
    .option('--healthcheck-exec <line>', 'it is well while this line of the shell ends with 0')
    .option('--no-wait', 'done when it is admitted; `fuse environment watch` tells the rest')
    .option('--follow', 'show what the startup script writes as it comes; it may take any time')
    .addHelpText('after', AFTER_HELP)
    .action(async (flags: Flags) => {
      const client = await clientOf(cli, command);
      const spec: EnvironmentSpec = {
        image: flags.image,
        cpus: flags.cpus,
        ram_mb: flags.ram ?? flags.ramMb,
        storage_gb: flags.disk ?? flags.storageGb,
        region: flags.region,
        arch: flags.arch,
        gpus: flags.gpus,
        gpu_kind: flags.gpuKind,
        gpu_profile: flags.gpuProfile,
        host_id: flags.host,
        labels: flags.label,
        max_runtime_seconds: flags.maxRuntime,
        idle_timeout_seconds: flags.idleTimeout,
      };
      const task_id = flags.taskId ?? `task-${randomBytes(6).toString('hex')}`;
      const isWaited = flags.wait && flags.follow !== true;
      const request: CreateEnvironment = {
        task_id,
        spec,
        env: flags.env,
        labels: flags.tag,
        queue_timeout_seconds: flags.queueTimeout,
        manifest_inline: flags.manifest === undefined ? undefined : await manifestText(flags.manifest),
        secrets: flags.secret,
        gateway_url: flags.gatewayUrl,
        gateway_token: flags.gatewayToken,
        seed_snapshot_id: flags.seedSnapshot,
        fallback: flags.fallback,
        network: networkOf(flags),
        idle_action: flags.idleAction,
        auto_resume: flags.autoResume,
        checkpoint_interval_seconds: flags.checkpointInterval,
        checkpoint_keep: flags.checkpointKeep,
        files: flags.file === undefined ? undefined : await startupFiles(flags.file),
        startup_script: flags.startupScript === undefined ? undefined : await scriptText(flags.startupScript),
        startup_script_timeout_seconds: flags.startupTimeout,
        expose: flags.expose,
        healthcheck: healthcheckOf(flags),
        wait: isWaited ? undefined : false,
      };
      const hasScript = request.startup_script !== undefined && request.startup_script !== '';
      const start = async (signal: AbortSignal) => {
        const created = await client.environments.create(request, { signal });
        return flags.follow === true ? followStart(cli, client, created, { hasScript, signal }) : created;
      };
      const environment = await longCall(
        cli,
        { doing: `starting a microVM for task ${task_id}`, lookAgain: `fuse environment list --task-id ${task_id}` },
        start,
      );
      await cli.io.out(wantsJson(command) ? json(environment) : environmentText(environment));
    });
  addGlobalOptions(command);
}

function healthcheckOf({ healthcheckHttp, healthcheckExec }: Flags): CreateEnvironment['healthcheck'] {
  if (healthcheckHttp !== undefined) return { http: healthcheckHttp };
  return healthcheckExec === undefined ? undefined : { exec: ['sh', '-lc', healthcheckExec] };
}
