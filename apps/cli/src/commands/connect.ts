import { FuseApiError, isUnauthorized } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientFor, type GlobalFlags, globalFlags, wantsJson } from '../cli.ts';
import { CliError, usageError } from '../cli-error.ts';
import {
  type Context,
  contextFilePath,
  readContextFile,
  withContext,
  writeContextFile,
} from '../config/context-file.ts';
import { json } from '../output/format.ts';

interface Flags {
  token?: string;
  name?: string;
  master?: boolean;
  verify: boolean;
}

const AFTER_HELP = `
Examples:
  FUSE_TOKEN=… fuse connect https://fuse.example.com --name prod
  FUSE_TOKEN=… fuse connect https://fuse.example.com --name acme --master --tenant acme    as the operator, for one tenant
`;

const SERVICE = 'fuse-orchestrator';

export function addConnectCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('connect')
    .description('Remember an orchestrator and use it from now on.')
    .argument('<url>')
    .option('--token <token>', 'its token (default: FUSE_TOKEN, which no process list shows)')
    .option('--name <name>', 'what to call it (default: its host name)')
    .option('--master', 'a note that the token is the master token, which `fuse status` shows; it decides nothing')
    .option('--no-verify', 'do not ask whether it is there and takes the token')
    .addHelpText('after', AFTER_HELP)
    .action(async (url: string, { token, name, master = false, verify }: Flags) => {
      const given = { url, name, master, verify, token: token ?? (cli.env.FUSE_TOKEN || undefined) };
      const entry = await rememberOrchestrator(cli, globalFlags(command), given);
      const { base_url } = entry;
      if (wantsJson(command)) await cli.io.out(json({ name: entry.name, base_url, master }));
      else cli.io.say(`connected to ${base_url} as context ${entry.name}`);
    });
  addGlobalOptions(command);
}

interface Orchestrator {
  url: string;
  name?: string | undefined;
  token: string | undefined;
  master: boolean;
  verify: boolean;
}

/** From now on it is whom commands talk to. */
export async function rememberOrchestrator(
  cli: Cli,
  { config, context, tenant }: GlobalFlags,
  { url, name, token, master, verify }: Orchestrator,
): Promise<Context> {
  const baseUrl = baseUrlOf(url);
  if (verify) await verifyOrchestrator(baseUrl, token, tenant);
  const entry: Context = {
    name: name ?? context ?? new URL(baseUrl).hostname,
    base_url: baseUrl,
    ...(token === undefined ? {} : { token }),
    master,
    ...(tenant === undefined ? {} : { tenant }),
  };
  const path = contextFilePath(config, cli.env);
  await writeContextFile(path, withContext(await readContextFile(path), entry));
  return entry;
}

function baseUrlOf(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return url.origin;
  throw usageError(`${text} is not an http or https URL`, { hint: 'such as https://fuse.example.com' });
}

async function verifyOrchestrator(
  baseUrl: string,
  token: string | undefined,
  tenant: string | undefined,
): Promise<void> {
  const client = clientFor({ baseUrl, token, tenant });
  const { service } = await client.version();
  if (service !== SERVICE)
    throw new CliError(`${baseUrl} is not a Fuse orchestrator: it calls itself ${JSON.stringify(service)}`);
  try {
    await client.hosts.listPage({ limit: 1 });
  } catch (error) {
    // It is there and takes the token. That it is not well today is no reason to forget it, nor is a key that may not see hosts (403).
    if (!(error instanceof FuseApiError) || (isUnauthorized(error) && error.status === 401)) throw error;
    if (tenant !== undefined && isOfTenant(error)) throw error;
  }
}

/** There is none such, or the token is of another one. */
const isOfTenant = ({ status, code, details }: FuseApiError): boolean =>
  code === 'not_found' || (status === 403 && details?.scope === undefined);
