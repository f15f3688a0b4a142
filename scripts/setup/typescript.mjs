import { run } from './command.mjs';
import { projectPath } from './paths.mjs';

/** Builds every TypeScript project that changed. @param {import('./tasks.mjs').StepContext} context */
export async function buildTypeScript({ signal, onLine }) {
  const output = await run(['node_modules/.bin/tsc', '-b', '--listEmittedFiles'], { cwd: projectPath, signal, onLine });
  const emitted = output.split('\n').filter((line) => line.startsWith('TSFILE:') && line.endsWith('.js')).length;
  return emitted === 0 ? { made: false } : { made: true, note: `${emitted} files` };
}
