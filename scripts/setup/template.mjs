/** The first templates: the default image in the default shape, without a network card and with one, so that the first run starts from one. */
import { run } from './command.mjs';
import { projectPath } from './paths.mjs';

/** @param {import('./tasks.mjs').StepContext} context @returns {Promise<{made: boolean, note?: string}>} */
export async function ensureTemplate({ signal, onLine }) {
  const output = await run([process.execPath, 'apps/host-agent/bin/fuse-template.js'], {
    cwd: projectPath,
    signal,
    onLine,
  });
  return JSON.parse(output);
}
