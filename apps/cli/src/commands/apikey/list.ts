import type { ApiKey } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { formatAge, json, table } from '../../output/format.ts';

const HEADINGS = ['ID', 'STATE', 'LABEL', 'TENANT', 'SCOPES', 'USED', 'CREATED'] as const;

export function addApiKeyListCommand(group: Command, cli: Cli): void {
  const command = group
    .command('list')
    .alias('ls')
    .description(
      'List API keys, the newest first; never the keys themselves. With the master token: of every tenant, or of --tenant.',
    )
    .addHelpText('after', '\nExample:\n  fuse apikeys list -o json | jq -r ".[] | select(.last_used_at == null).id"\n')
    .action(() => listApiKeys(cli, command));
  addGlobalOptions(command);
}

export async function listApiKeys(cli: Cli, command: Command): Promise<void> {
  const client = await clientOf(cli, command);
  const keys = await client.apiKeys.list();
  if (wantsJson(command)) await cli.io.out(json(keys));
  else if (keys.length === 0) cli.io.say('no API keys');
  else await cli.io.out(table(HEADINGS, keys.map(rowAt(Date.now()))));
}

const rowAt =
  (nowMs: number) =>
  (key: ApiKey): string[] => [
    key.id,
    stateAt(nowMs, key),
    key.label ?? '',
    key.tenant_id,
    key.scopes?.join(' ') ?? 'plain',
    key.last_used_at === undefined ? 'never' : formatAge(nowMs - Date.parse(key.last_used_at)),
    key.created_at,
  ];

function stateAt(nowMs: number, { revoked_at, expires_at }: ApiKey): string {
  if (revoked_at !== undefined) return 'revoked';
  return expires_at !== undefined && Date.parse(expires_at) <= nowMs ? 'expired' : 'good';
}
