import { tryRun } from './command.mjs';

/** How to become root here: already, by a sudo that asks nothing, or not at all. sudo drops the environment: say `env` what a program needs. @returns {Promise<{kind: 'root' | 'sudo' | 'none', prefix: string[]}>} */
export async function rootAccess() {
  if (process.getuid?.() === 0) return { kind: 'root', prefix: [] };
  if ((await tryRun(['sudo', '-n', 'true'])) !== undefined) return { kind: 'sudo', prefix: ['sudo', '-n'] };
  return { kind: 'none', prefix: [] };
}
