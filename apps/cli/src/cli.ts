/** What every command gets: where to write, whom to ask. */
import { FuseClient, VERSION } from '@fuse/sdk';
import { nodeFetch, nodeWebSockets } from '@fuse/sdk/node';
import { type Command, Option } from 'commander';
import { type Connection, resolveConnection } from './config/connection.ts';
import type { ProcessEnv } from './config/fuse-home.ts';
import type { Io } from './output/io.ts';

export interface Cli {
  io: Io;
  env: ProcessEnv;
  /** The command line behind the program's name. */
  argv: readonly string[];
}

export interface GlobalFlags {
  output?: string;
  context?: string;
  config?: string;
  tenant?: string;
}

/** Understood before and behind the command's name. */
export function addGlobalOptions(command: Command, { output = true } = {}): Command {
  if (output) command.addOption(new Option('-o, --output <format>', 'how to print data').choices(['table', 'json']));
  return command
    .option('--context <name>', 'whom to ask (see `fuse context list`)')
    .option('--config <path>', 'the file that holds the contexts')
    .option('--tenant <id>', 'with the master token: the tenant to act in (default: FUSE_TENANT, else `default`)');
}

/** The innermost one given wins. */
export function globalFlags(command: Command): GlobalFlags {
  const flags: GlobalFlags = {};
  for (let at: Command | null = command; at !== null; at = at.parent) {
    const { output, context, config, tenant } = at.opts<Record<string, unknown>>();
    if (flags.output === undefined && (output === 'table' || output === 'json')) flags.output = output;
    if (flags.context === undefined && typeof context === 'string') flags.context = context;
    if (flags.config === undefined && typeof config === 'string') flags.config = config;
    if (flags.tenant === undefined && typeof tenant === 'string') flags.tenant = tenant;
  }
  return flags;
}

export const wantsJson = (command: Command): boolean => globalFlags(command).output === 'json';

export const connectionOf = (cli: Cli, command: Command): Promise<Connection> =>
  resolveConnection(globalFlags(command), cli.env);

export async function clientOf(cli: Cli, command: Command): Promise<FuseClient> {
  return clientFor(await connectionOf(cli, command));
}

export const clientFor = ({ baseUrl, token, tenant }: Pick<Connection, 'baseUrl' | 'token' | 'tenant'>): FuseClient =>
  new FuseClient({
    baseUrl,
    token,
    tenant,
    fetch: nodeFetch(),
    webSockets: nodeWebSockets(),
    userAgent: `fuse-cli/${VERSION}`,
  });
