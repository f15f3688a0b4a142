import { randomBytes, randomUUID } from 'node:crypto';
import { link, open, readFile, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Failure } from './failure.ts';

export const newToken = (): string => randomBytes(32).toString('base64url');

/** The token in the file; made at the first call, and the same ever after. */
export async function ensureToken(path: string): Promise<string> {
  const token = await ensureSecret(path);
  if (!/^\S{16,}$/.test(token)) throw new Failure(`${path} does not hold a token`, 'remove it: a new one is made');
  return token;
}

/** The same for the key of what is secret in the database. Whether it is one is said by who reads the file; a new one would make a database unreadable. */
export async function ensureSealingKey(path: string): Promise<void> {
  await ensureSecret(path);
}

/** It is never visible half-written, and on the disk before anything depends on it. */
async function ensureSecret(path: string): Promise<string> {
  const partial = `${path}.${randomUUID()}`;
  await writeDurably(partial, `${newToken()}\n`);
  try {
    await link(partial, path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    await rm(partial, { force: true });
  }
  await syncDirectory(dirname(path)); // another may have made it a moment ago
  return (await readFile(path, 'utf8')).trim();
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
