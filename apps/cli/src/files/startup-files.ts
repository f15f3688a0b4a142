/** Local files that a create takes along. They are small: the API takes 512 KiB of them. */
import { readFile } from 'node:fs/promises';
import { CliError } from '../cli-error.ts';

/** The text itself, or, as `@FILE`, what is in that file. */
export async function scriptText(given: string): Promise<string> {
  return given.startsWith('@') ? (await read(given.slice(1))).toString('utf8') : given;
}

/** As the API takes a manifest, in base64; JSON as it is written is encoded first. `@FILE`: what is in FILE. */
export async function manifestText(given: string): Promise<string> {
  const text = (await scriptText(given)).trim();
  return text.startsWith('{') ? Buffer.from(text).toString('base64') : text;
}

/** By the path in the guest, as base64. */
export async function startupFiles(locals: Readonly<Record<string, string>>): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  for (const [guest, local] of Object.entries(locals)) files[guest] = (await read(local)).toString('base64');
  return files;
}

async function read(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new CliError(`cannot read ${path}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}
