/**
 * `npm start`: sets everything up, runs the example in a fresh microVM on the local stack, and leaves nothing behind. A local stack that
 * runs already is used, and left running.
 */
import { join } from 'node:path';
import { SetupError } from './setup/command.mjs';
import { homePath, projectPath } from './setup/paths.mjs';
import { show } from './setup/show.mjs';
import { runScript, setUp } from './setup.mjs';
import { leftovers } from './start/leftovers.mjs';
import { localStackRuns, ONLY_LOCAL_STACK_OPTIONS, onlyLocalStackVariables } from './start/local-stack.mjs';

const RUN_DEADLINE_MS = 10 * 60_000;
const STOP_DEADLINE_MS = 2 * 60_000;
const OUTPUT_DIRECTORY = 'fuse-outputs';

await runScript(async (signal) => {
  const { changed } = await setUp(signal);
  const wasRunning = await localStackRuns();
  if (wasRunning && changed)
    process.stderr.write(
      'note: a local stack of an older build is running; `npx fuse local down` ends it and its VMs\n',
    );
  let exitCode;
  try {
    if (!wasRunning) await fuse(['local', 'up'], signal);
    process.stderr.write('\nRunning examples/flight-delays/analyse.py in a fresh microVM\n\n');
    exitCode = await fuseExitCode(exampleArguments(), signal);
  } finally {
    // Also when the user stopped us: what we started we end.
    if (!wasRunning) await fuse(['local', 'down'], AbortSignal.timeout(STOP_DEADLINE_MS));
  }
  if (exitCode === 0)
    process.stderr.write(`\nLook at ${OUTPUT_DIRECTORY}/report.json and ${OUTPUT_DIRECTORY}/chart.svg\n`);
  if (wasRunning) return exitCode;
  const left = await leftovers(homePath);
  if (left.length > 0) throw new SetupError(`left behind:\n${left.map((each) => `  ${each}`).join('\n')}`);
  process.stderr.write('The local stack is down; no process, mount, namespace or tap is left.\n');
  return exitCode;
});

function exampleArguments() {
  const data = 'node_modules/vega-datasets/data';
  return [
    ...['run', ...ONLY_LOCAL_STACK_OPTIONS],
    ...['--input', join(data, 'flights-20k.json'), '--input', join(data, 'airports.csv')],
    ...['--output', 'report.json', '--output', 'chart.svg', '--output-dir', OUTPUT_DIRECTORY],
    'examples/flight-delays/analyse.py',
  ];
}

/** @param {string[]} args @param {AbortSignal} signal */
function fuseExitCode(args, signal) {
  const argv = [process.execPath, 'apps/cli/bin/fuse.js', ...args];
  // Any free port will do for a stack that is gone in a minute.
  const env = { ...onlyLocalStackVariables, FUSE_PORT: process.env.FUSE_PORT || '0' };
  return show(argv, { cwd: projectPath, env, signal, deadlineMs: RUN_DEADLINE_MS });
}

/** @param {string[]} args @param {AbortSignal} signal */
async function fuse(args, signal) {
  const code = await fuseExitCode(args, signal);
  if (code !== 0) throw new SetupError(`fuse ${args.join(' ')} ended with exit code ${code}`);
}
