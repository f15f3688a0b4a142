/** Where the local stack keeps what. */
import { chmod, mkdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

export type ProcessEnv = Readonly<Record<string, string | undefined>>;

export interface Home {
  directory: string;
  assetsManifest: string;
  /** The host agent's data: VMs and templates. */
  host: string;
  postgres: string;
  token: string;
  /** Of what is secret in the database. Made at the first start; without it that cannot be read any more. */
  sealingKey: string;
  /** Of the stack that is up. */
  localFile: string;
  log: string;
  /** Held by the one process that serves this home. */
  serviceLock: string;
  /** Held while `up` or `down` is at work. */
  operationLock: string;
}

export function homeOf(env: ProcessEnv): Home {
  const directory = env.FUSE_HOME ? resolve(env.FUSE_HOME) : join(homedir(), '.fuse');
  return {
    directory,
    assetsManifest: join(directory, 'assets', 'manifest.json'),
    host: join(directory, 'host'),
    postgres: join(directory, 'postgres'),
    token: join(directory, 'token'),
    sealingKey: join(directory, 'sealing-key'),
    localFile: join(directory, 'local.json'),
    log: join(directory, 'local.log'),
    serviceLock: join(directory, 'service.lock'),
    operationLock: join(directory, 'operation.lock'),
  };
}

/** It holds tokens and what ran in VMs: for its owner only. */
export async function makeHome(home: Home): Promise<void> {
  await mkdir(home.directory, { recursive: true, mode: 0o700 });
  await chmod(home.directory, 0o700); // whoever made it first
}
