import type { Command } from 'commander';
import { addGlobalOptions, type Cli } from '../../cli.ts';
import { addHostGetCommand } from './get.ts';
import { addHostJoinTokenCommand } from './join-token.ts';
import { addHostListCommand, addHostListOptions, type HostListFlags, listHosts } from './list.ts';
import { addHostLostCommand } from './lost.ts';
import { addHostMetricsCommand } from './metrics.ts';
import { addHostPlacementCommands } from './placement-state.ts';
import { addHostProbeCommand } from './probe.ts';
import { addHostRegisterCommand } from './register.ts';
import { addHostRemoveCommand } from './remove.ts';
import { selectHost } from './select.ts';

const AFTER_HELP = `
Placing on a host: cordon stops it, drain stops it for a host that is to go, uncordon allows it again; what runs there goes on. A host that
is unheard of is "unreachable": nothing is placed there, nothing is destroyed, and it comes back by itself. Only \`hosts lost\` gives it up.

Examples:
  fuse hosts                                         what there is, and how full it is
  fuse hosts join-token                              what a new host agent joins with
  fuse hosts drain h1 && fuse environment list --all-tenants --host-id h1
  fuse hosts remove h1 --yes                         once nothing is there any more
`;

const SELECT_HELP = `
Lists of environments then show only what is on it (--all shows the rest). It decides nothing about where environments are placed.

Examples:
  fuse host h1        select it for the current context
  fuse host           which one is selected
  fuse host --none    all of them again
`;

export function addHostCommands(parent: Command, cli: Cli): void {
  const hosts = parent.command('hosts').alias('host-list').description('The machines that VMs run on.');
  addHostListOptions(hosts)
    .addHelpText('after', AFTER_HELP)
    .action((flags: HostListFlags) => listHosts(cli, hosts, flags));
  addGlobalOptions(hosts);
  addSubcommands(hosts, cli);

  const host = parent
    .command('host')
    .description('Select the active host of the current context, or show it.')
    .argument('[id]')
    .option('--none', 'select none')
    .addHelpText('after', SELECT_HELP)
    .action((id: string | undefined, flags: { none?: true }) => selectHost(cli, host, id, flags));
  addGlobalOptions(host);
  addSubcommands(host, cli);
}

function addSubcommands(group: Command, cli: Cli): void {
  addHostListCommand(group, cli);
  addHostGetCommand(group, cli);
  addHostRegisterCommand(group, cli);
  addHostJoinTokenCommand(group, cli);
  addHostPlacementCommands(group, cli);
  addHostProbeCommand(group, cli);
  addHostMetricsCommand(group, cli);
  addHostLostCommand(group, cli);
  addHostRemoveCommand(group, cli);
}
