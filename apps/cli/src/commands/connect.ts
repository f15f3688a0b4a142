import { FuseApiError, isUnauthorized } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientFor, globalFlags, wantsJson } from '../cli.ts';
import { CliError } from '../cli-error.ts';
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

const SERVICE = 'fuse-orchestrator';

export function addConnectCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('connect')
    .description('Remember an orchestrator and use it from now on.')
    .argument('<url>')
    .option('--token <token>', 'its token (default: FUSE_TOKEN, which no process list shows)')
    .option('--name <name>', 'what to call it (default: its host name)')
    .option('--master', 'the token is the master token')
    .option('--no-verify', 'do not ask whether it is there and takes the token')
    .addHelpText('after', '\nExample:\n  FUSE_TOKEN=… fuse connect https://fuse.example.com --name prod\n')
    .action(async (url: string, flags: Flags) => {
      const { config, context } = globalFlags(command);
      const token = flags.token ?? (cli.env.FUSE_TOKEN || undefined);
      const baseUrl = baseUrlOf(url);
      if (flags.verify) await verify(baseUrl, token);
      const entry: Context = {
        name: flags.name ?? context ?? new URL(baseUrl).hostname,
        base_url: baseUrl,
        ...(token === undefined ? {} : { token }),
        master: flags.master ?? false,
      };
      const path = contextFilePath(config, cli.env);
      await writeContextFile(path, withContext(await readContextFile(path), entry));
      if (wantsJson(command)) await cli.io.out(json({ name: entry.name, base_url: baseUrl, master: entry.master }));
      else cli.io.say(`connected to ${baseUrl} as context ${entry.name}`);
    });
  addGlobalOptions(command);
}

function baseUrlOf(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return url.origin;
  throw new CliError(`${text} is not an http or https URL`, { hint: 'such as https://fuse.example.com' });
}

async function verify(baseUrl: string, token: string | undefined): Promise<void> {
  const client = clientFor({ baseUrl, token });
  const { service } = await client.version();
  if (service !== SERVICE)
    throw new CliError(`${baseUrl} is not a Fuse orchestrator: it calls itself ${JSON.stringify(service)}`);
  try {
    await client.environments.listPage({ limit: 1 });
  } catch (error) {
    if (isUnauthorized(error)) throw error;
    // It is there and takes the token; that it is not well today is no reason to forget it.
    if (!(error instanceof FuseApiError)) throw error;
  }
}
