import { type Command, Option } from 'commander';
import { addNetworkOptions, type NetworkFlags, networkOf } from '../../args/network.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { policyOf } from '../../files/policy-file.ts';
import { interruptSignal } from '../../interrupt.ts';
import { json, table } from '../../output/format.ts';
import { connectionHeadings, connectionRow, isListed, networkText, refusalText } from '../../output/network-text.ts';

interface Flags extends NetworkFlags {
  set?: string;
  follow?: true;
}

const AFTER_HELP = `
Another policy is enforced when this is done: what it does not allow is cut. An environment that was started with none has no network card, and gets none.

Examples:
  fuse environment network fuse-demo                                        what was refused, and why
  fuse environment network fuse-demo --allow pypi.org --allow files.pythonhosted.org
  fuse environment network fuse-demo --egress none                          nothing, from now on
  fuse environment network fuse-demo --set @policy.json
  fuse environment network fuse-demo --follow                               then each further refusal, as it comes
  fuse environment network fuse-demo -o json | jq -r '.connections[] | select(.verdict == "refused") | .name'
`;

export function addEnvironmentNetworkCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('network')
    .description(
      'Show what an environment may reach and what became of its connections; also of one that is gone. Or change it.',
    )
    .argument('<id>');
  addNetworkOptions(command)
    .addOption(
      new Option('--set <policy>', 'none, allowlist, internet, or JSON; @FILE: what is in FILE').conflicts([
        'egress',
        'allow',
        'deny',
      ]),
    )
    .option('-f, --follow', 'then print each further refusal as it comes, until it is destroyed or failed')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, { set, follow, ...flags }: Flags) => {
      const network = (await policyOf(set)) ?? networkOf(flags);
      const client = await clientOf(cli, command);
      if (network !== undefined) await client.environments.update(id, { network });
      const asJson = wantsJson(command);
      // Connected before it is looked at: nothing is lost in between, and what came in between is told once.
      const events = follow === true ? await client.environments.events(id, { signal: interruptSignal() }) : [];
      const report = await client.environments.network(id);
      if (asJson) await cli.io.out(json(report));
      else {
        await cli.io.out(networkText(report));
        if (report.connections.length > 0)
          await cli.io.out(`\n${table(connectionHeadings, report.connections.map(connectionRow))}`);
      }
      for await (const event of events) {
        if (event.network === undefined || isListed(event.network, report.connections)) continue;
        await cli.io.out(asJson ? json(event) : `${event.network.at}  ${refusalText(event.network)}\n`);
      }
    });
  addGlobalOptions(command);
}
