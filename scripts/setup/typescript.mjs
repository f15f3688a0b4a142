import { run } from './command.mjs';
import { projectPath } from './paths.mjs';

/** What `fuse` and the local stack are made of. */
export const PROGRAMS = ['apps/cli', 'apps/local'];
/** Those, the end-to-end tests and the benchmarks. */
export const EVERYTHING = ['.'];

/**
 * Builds what changed of these TypeScript projects and of those that they need.
 * @param {string[]} projects
 * @param {import('./tasks.mjs').StepContext} context
 */
export async function buildTypeScript(projects, { signal, onLine }) {
  const isEmitted = (/** @type {string} */ line) => line.startsWith('TSFILE:');
  const output = await run(['node_modules/.bin/tsc', '-b', '--listEmittedFiles', ...projects], {
    cwd: projectPath,
    signal,
    onLine,
    isNoise: isEmitted,
  });
  const count = output.split('\n').filter((line) => isEmitted(line) && line.endsWith('.js')).length;
  return count === 0 ? { made: false } : { made: true, note: `${count} files` };
}
