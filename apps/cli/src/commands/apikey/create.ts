import { scopes } from '@fuse/contract';
import type { Scope } from '@fuse/sdk';
import { type Command, InvalidArgumentError } from 'commander';
import { parseDurationSeconds } from '../../args/duration.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { json, properties } from '../../output/format.ts';

interface Flags {
  label?: string;
  scope?: Scope[];
  expires?: number;
}

const AFTER_HELP = `
Scopes: ${scopes.join(', ')}.
"exec" is for commands and terminals, "admin" for all of them and the keys, usage and audit log of the tenant.

Examples:
  fuse apikeys create --label ci --scope runs,files --expires 90d
  FUSE_TOKEN=$(fuse apikeys create --scope environments:read -o json | jq -r .key) fuse environment list
  fuse apikeys create --tenant acme --label "all but commands"
`;

export function addApiKeyCreateCommand(group: Command, cli: Cli): void {
  const command = group
    .command('create')
    .description('Make an API key; it is shown this one time.')
    .option('--label <text>', 'what it is for, for people')
    .option('--scope <scope>', 'what it may do; may be repeated, or several with "," between them', gatherScopes)
    .option('--expires <time>', 'good for 12h, 90d … (default: until it is revoked)', parseDurationSeconds)
    .addHelpText('after', AFTER_HELP)
    .action(async ({ label, scope, expires }: Flags) => {
      const client = await clientOf(cli, command);
      const minted = await client.apiKeys.create({ label, scopes: scope, expires_in_seconds: expires });
      if (wantsJson(command)) {
        await cli.io.out(json(minted));
        return;
      }
      await cli.io.out(
        properties({
          id: minted.id,
          key: minted.key,
          label: minted.label,
          tenant: minted.tenant_id,
          scopes: minted.scopes?.join(' '),
          expires: minted.expires_at,
        }),
      );
      cli.io.say('keep the key: it is not shown again');
    });
  addGlobalOptions(command);
}

function gatherScopes(text: string, soFar: readonly Scope[] = []): Scope[] {
  const given = text.split(',').map((each) => {
    const scope = scopes.find((known) => known === each.trim());
    if (scope === undefined) throw new InvalidArgumentError(`${JSON.stringify(each)} is none of ${scopes.join(', ')}.`);
    return scope;
  });
  return [...new Set([...soFar, ...given])];
}
