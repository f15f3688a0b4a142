/** What the orchestrator has to show this host agent, when nobody gave it one: made once, kept beside the VMs. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { writeDurably } from '../vms/atomic-file.ts';

const TOKEN = /^[A-Za-z0-9_-]{43}$/;

export async function ownToken(dataDirectory: string): Promise<string> {
  const path = join(dataDirectory, 'token');
  const kept = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (kept !== undefined) {
    if (TOKEN.test(kept.trim())) return kept.trim();
    throw new AppError('unavailable', `${path} does not hold a token`, {
      hint: 'Put back what it held, or remove it and the host from the fleet, and join again.',
    });
  }
  const token = randomBytes(32).toString('base64url');
  await writeDurably(path, `${token}\n`);
  return token;
}
