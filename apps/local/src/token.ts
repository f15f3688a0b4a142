import { randomBytes } from 'node:crypto';
import { link, readFile, rm, writeFile } from 'node:fs/promises';
import { Failure } from './failure.ts';

export const newToken = (): string => randomBytes(32).toString('base64url');

/** The token in the file; made at the first call, and the same ever after. It is never visible half-written. */
export async function ensureToken(path: string): Promise<string> {
  const partial = `${path}.${process.pid}`;
  await writeFile(partial, `${newToken()}\n`, { mode: 0o600 });
  try {
    await link(partial, path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    await rm(partial, { force: true });
  }
  const token = (await readFile(path, 'utf8')).trim();
  if (!/^\S{16,}$/.test(token)) throw new Failure(`${path} does not hold a token`, 'remove it: a new one is made');
  return token;
}
