import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

export type ProcessEnv = Readonly<Record<string, string | undefined>>;

export function fuseHome(env: ProcessEnv): string {
  const set = env.FUSE_HOME;
  return set === undefined || set === '' ? join(homedir(), '.fuse') : resolve(set);
}
