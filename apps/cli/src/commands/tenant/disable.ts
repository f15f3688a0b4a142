import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json } from '../../output/format.ts';
import { tenantText } from '../../output/tenant-text.ts';

/** `update --disable` and `--enable`, by the names that are looked for. */
export function addTenantDisableCommands(group: Command, cli: Cli): void {
  addCommand('disable', 'Refuse the keys of a tenant and start nothing new in it; what runs goes on.', true);
  addCommand('enable', 'Undo that.', false);

  function addCommand(name: string, description: string, disabled: boolean): void {
    const command = group
      .command(name)
      .description(description)
      .argument('<id>')
      .addHelpText('after', `\nExample:\n  fuse tenants ${name} acme\n`)
      .action(async (id: string) => {
        const client = await clientOf(cli, command);
        const tenant = await client.tenants.update(id, { disabled });
        await cli.io.out(wantsJson(command) ? json(tenant) : tenantText(tenant));
      });
    addGlobalOptions(command);
  }
}
