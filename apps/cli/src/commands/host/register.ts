import type { RegisterHost } from '@fuse/sdk';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { gatherLabel } from '../../args/key-value.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { usageError } from '../../cli-error.ts';
import { json, printable } from '../../output/format.ts';
import { hostText } from '../../output/host-text.ts';

interface Flags {
  url: string;
  region?: string;
  token?: string;
  backend?: 'firecracker' | 'qemu';
  arch?: string;
  verify: boolean;
  cpus?: number;
  ramMb?: number;
  storageGb?: number;
  maxVms?: number;
  gpus?: number;
  gpuKind?: string;
  migProfile?: Record<string, number>;
  label?: Record<string, string>;
}

const AFTER_HELP = `
What is not said of its capacity is asked of it. A host that was registered under this id is replaced.

Examples:
  FUSE_HOST_TOKEN=… fuse hosts register h1 --url http://10.0.0.7:8090 --region eu
  fuse hosts register h2 --url http://10.0.0.8:8090 --no-verify --cpus 16 --ram-mb 65536 --storage-gb 500 --max-vms 100
`;

export function addHostRegisterCommand(group: Command, cli: Cli): void {
  const command = group
    .command('register')
    .description(
      'Take a host into the fleet, by the address of its host agent. (It can join by itself, too: see join-token.)',
    )
    .argument('<id>')
    .requiredOption('--url <url>', 'where its host agent listens')
    .option('--region <name>', 'its region')
    .option('--token <token>', 'of its host agent (default: FUSE_HOST_TOKEN, which no process list shows)')
    .addOption(new Option('--backend <name>', 'what it starts VMs with').choices(['firecracker', 'qemu']))
    .option('--arch <arch>', 'amd64 or arm64 (default: what it says)')
    .option('--no-verify', 'without a token; with all of its capacity given, it need not answer')
    .option('--cpus <n>', 'how many of its CPUs', parsePositiveInt)
    .option('--ram-mb <n>', 'how much of its memory', parsePositiveInt)
    .option('--storage-gb <n>', 'how much of its disk', parsePositiveInt)
    .option('--max-vms <n>', 'how many VMs at most', parsePositiveInt)
    .option('--gpus <n>', 'how many GPUs', parsePositiveInt)
    .option('--gpu-kind <kind>', 'of which kind')
    .option('--mig-profile <profile=n>', 'how many instances of a MIG profile; may be repeated', gatherProfile)
    .option('--label <key=value>', 'what environments can ask for; may be repeated', gatherLabel)
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, flags: Flags) => {
      const token = flags.token ?? (cli.env.FUSE_HOST_TOKEN || undefined);
      if (token === undefined && flags.verify && flags.backend !== 'qemu')
        throw usageError('a host agent asks for a token', {
          hint: 'give it with FUSE_HOST_TOKEN or --token, or say --no-verify if this one has none',
        });
      const client = await clientOf(cli, command);
      const { warnings = [], ...host } = await client.hosts.register(requestOf(id, token, flags));
      for (const warning of warnings) cli.io.say(`warning: ${printable(warning)}`);
      if (wantsJson(command)) await cli.io.out(json(warnings.length === 0 ? host : { ...host, warnings }));
      else await cli.io.out(hostText(host));
    });
  addGlobalOptions(command);
}

const requestOf = (id: string, token: string | undefined, flags: Flags): RegisterHost => ({
  id,
  url: flags.url,
  token,
  region: flags.region,
  backend: flags.backend,
  labels: flags.label,
  capacity: {
    cpus: flags.cpus,
    ram_mb: flags.ramMb,
    storage_gb: flags.storageGb,
    vm_count: flags.maxVms,
    arch: flags.arch,
    gpus: flags.gpus,
    gpu_kind: flags.gpuKind,
    mig_profiles: flags.migProfile,
  },
});

function gatherProfile(text: string, soFar: Readonly<Record<string, number>> = {}): Record<string, number> {
  const [profile, count, ...more] = text.split('=');
  if (profile === undefined || profile === '' || count === undefined || more.length > 0)
    throw new InvalidArgumentError('Write PROFILE=N, such as 1g.10gb=4.');
  return { ...soFar, [profile]: parsePositiveInt(count) };
}
