/**
 * Whom a command talks to: `--context`, else FUSE_URL with FUSE_TOKEN, else the current context, else the local stack when it is up.
 * FUSE_TOKEN also replaces the current context's token. The tenant is `--tenant`, else FUSE_TENANT, else the context's.
 */
import { CliError } from '../cli-error.ts';
import { type Context, contextFilePath, contextNamed, readContextFile } from './context-file.ts';
import type { ProcessEnv } from './fuse-home.ts';
import { runningLocalStack } from './local-stack.ts';

export const LOCAL_CONTEXT = 'local';

export interface Connection {
  /** A context's name; "local", or "FUSE_URL". */
  name: string;
  baseUrl: string;
  token: string | undefined;
  master: boolean;
  tenant: string | undefined;
  /** Lists show only what is there. */
  activeHost: string | undefined;
}

export interface ConnectionFlags {
  context?: string | undefined;
  config?: string | undefined;
  tenant?: string | undefined;
}

export async function resolveConnection(flags: ConnectionFlags, env: ProcessEnv): Promise<Connection> {
  const { tenant, ...connection } = await fromWhereItIs(flags, env);
  return { ...connection, tenant: flags.tenant ?? (env.FUSE_TENANT || tenant) };
}

async function fromWhereItIs(flags: ConnectionFlags, env: ProcessEnv): Promise<Connection> {
  if (flags.context === undefined && env.FUSE_URL)
    return {
      ...unremembered,
      name: 'FUSE_URL',
      baseUrl: env.FUSE_URL,
      token: env.FUSE_TOKEN || undefined,
      master: false,
    };
  const file = await readContextFile(contextFilePath(flags.config, env));
  const name = flags.context ?? file.current_context;
  if (name !== undefined && (name !== LOCAL_CONTEXT || file.contexts.some((each) => each.name === name))) {
    const connection = fromContext(contextNamed(file, name));
    return flags.context === undefined && env.FUSE_TOKEN ? { ...connection, token: env.FUSE_TOKEN } : connection;
  }
  const local = await runningLocalStack(env);
  if (local !== undefined)
    return { ...unremembered, name: LOCAL_CONTEXT, baseUrl: local.url, token: local.token, master: true };
  if (name === LOCAL_CONTEXT)
    throw new CliError('the local stack is not up', { hint: 'start it with `fuse local up`' });
  throw new CliError('no active context: run `fuse connect <url> --token <token>` first', {
    hint: 'the local stack, which is asked when there is no context, is not running: `fuse local up` starts it. Or set FUSE_URL and FUSE_TOKEN',
  });
}

const unremembered = { tenant: undefined, activeHost: undefined };

const fromContext = (context: Context): Connection => ({
  name: context.name,
  baseUrl: context.base_url,
  token: context.token,
  master: context.master ?? false,
  tenant: context.tenant,
  activeHost: context.active_host,
});
