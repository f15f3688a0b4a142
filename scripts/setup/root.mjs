import { tryRun } from './command.mjs';

/** How to become root here: already, by a sudo that asks nothing, or not at all. @returns {Promise<{kind: 'root' | 'sudo' | 'none', prefix: string[]}>} */
export async function rootAccess() {
  if (process.getuid?.() === 0) return { kind: 'root', prefix: [] };
  // sudo drops the environment: what the child must know goes through `env`.
  if ((await tryRun(['sudo', '-n', 'true'])) !== undefined) return { kind: 'sudo', prefix: ['sudo', '-n', '-E'] };
  return { kind: 'none', prefix: [] };
}
