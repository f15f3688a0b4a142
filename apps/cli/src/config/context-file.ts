/**
 * The contexts that `fuse connect` remembers: `$XDG_CONFIG_HOME/fuse/config.yaml`, else `~/.config/fuse/config.yaml`, as published clients
 * write it. It holds tokens: file 0600, directory 0700. Keys of other versions are kept.
 */
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { CliError } from '../cli-error.ts';
import type { ProcessEnv } from './fuse-home.ts';

export const Context = z.looseObject({
  name: z.string().min(1),
  base_url: z.string(),
  token: z.string().optional(),
  master: z.boolean().optional(),
  active_host: z.string().optional(),
  /** Ours. */
  tenant: z.string().optional(),
});
export type Context = z.infer<typeof Context>;

export const ContextFile = z.looseObject({
  current_context: z.string().optional(),
  contexts: z.array(Context).default([]),
});
export type ContextFile = z.infer<typeof ContextFile>;

export function contextFilePath(flag: string | undefined, env: ProcessEnv): string {
  if (flag !== undefined) return flag;
  const base = env.XDG_CONFIG_HOME ? env.XDG_CONFIG_HOME : join(homedir(), '.config');
  return join(base, 'fuse', 'config.yaml');
}

/** A file that does not exist holds no contexts. */
export async function readContextFile(path: string): Promise<ContextFile> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return { contexts: [] };
    throw new CliError(`cannot read ${path}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
  const { parse } = await import('yaml');
  try {
    return ContextFile.parse(parse(text) ?? {});
  } catch (error) {
    const problem =
      error instanceof z.ZodError ? z.prettifyError(error) : error instanceof Error ? error.message : error;
    throw new CliError(`${path} is not a list of contexts: ${problem}`, {
      hint: 'mend it, or remove it and use `fuse connect` again',
      cause: error,
    });
  }
}

export async function writeContextFile(path: string, file: ContextFile): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const partial = `${path}.${process.pid}.partial`;
  const { stringify } = await import('yaml');
  await writeFile(partial, stringify(file), { mode: 0o600 });
  await chmod(partial, 0o600);
  await rename(partial, path);
}

export function withContext(file: ContextFile, context: Context): ContextFile {
  const others = file.contexts.filter((each) => each.name !== context.name);
  return { ...file, current_context: context.name, contexts: [...others, context] };
}

export function withoutContext(file: ContextFile, name: string): ContextFile {
  const contexts = file.contexts.filter((each) => each.name !== name);
  const { current_context, ...rest } = file;
  return {
    ...rest,
    ...(current_context === name || current_context === undefined ? {} : { current_context }),
    contexts,
  };
}

export function contextNamed(file: ContextFile, name: string): Context {
  const context = file.contexts.find((each) => each.name === name);
  if (context !== undefined) return context;
  const known = file.contexts.map((each) => each.name).join(', ');
  throw new CliError(`there is no context ${JSON.stringify(name)}`, {
    hint: known === '' ? '`fuse connect <url> --token <token>` makes one' : `choose one of: ${known}`,
  });
}
