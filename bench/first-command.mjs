/**
 * What the product adds to the floor, in one run, in turn: create -> first command done, and an exec of `true`, through the public API,
 * beside a bare script that restores the same template and talks over the raw guest channel (floor.mjs).
 *
 *   node bench/first-command.mjs [N=20] [ram=512] [local | separate]
 *
 * `separate`: orchestrator and host agent as processes of their own over PostgreSQL, as in production, in place of the local stack.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { localStack, quantile, report, timed } from './local-stack.mjs';
import { separateStack } from './separate-stack.mjs';

const run = promisify(execFile);
const n = Number(process.argv[2] ?? 20);
const ram = process.argv[3] ?? '512';
const floorScript = fileURLToPath(new URL('floor.mjs', import.meta.url));
const EXECS_A_ROUND = 5;

/** @type {Record<string, number[]>} */
const series = {
  'floor: restore -> command': [],
  'API: create -> command': [],
  'API: run -> result': [],
  'floor: exec': [],
  'API: exec': [],
};

const stack = await (process.argv[4] === 'separate' ? separateStack() : localStack());
try {
  for (let round = -1; round < n; round++) {
    const { stdout } = await run(process.execPath, [floorScript, '--n', '1', '--json', '--ram', ram, '--', 'true']);
    const floor = Object.fromEntries(
      JSON.parse(stdout).rows.map((/** @type {{phase: string, p50: number}} */ row) => [row.phase, row.p50]),
    );
    const spec = { cpus: 1, ram_mb: Number(ram), storage_gb: 2 };
    const created = await timed(async () => {
      const environment = await stack.client.environments.create({ task_id: `bench-${round + 1}`, spec });
      await stack.client.environments.exec(environment.id, { cmd: ['true'] });
      return environment;
    });
    /** @type {number[]} */
    const execs = [];
    for (let i = 0; i < EXECS_A_ROUND; i++)
      execs.push((await timed(() => stack.client.environments.exec(created.value.id, { cmd: ['true'] }))).ms);
    await stack.client.environments.destroy(created.value.id);
    const whole = await timed(() => stack.client.runs.create({ cmd: ['true'], limits: spec, wait: true }));
    if (round < 0) continue; // the first of everything warms up
    series['floor: restore -> command']?.push(floor.command);
    series['API: create -> command']?.push(created.ms);
    series['API: run -> result']?.push(whole.ms);
    series['floor: exec']?.push(floor.again);
    series['API: exec']?.push(...execs);
  }
} finally {
  await stack[Symbol.asyncDispose]();
}

report(`first command and exec, ${ram} MiB`, series);
const ratio = (/** @type {string} */ one, /** @type {string} */ other) =>
  (quantile(series[one] ?? [], 0.5) / quantile(series[other] ?? [], 0.5)).toFixed(2);
process.stdout.write(
  `create -> command: ${ratio('API: create -> command', 'floor: restore -> command')} x the floor (p50)\n`,
);
process.stdout.write(`exec of true: ${ratio('API: exec', 'floor: exec')} x the floor (p50)\n`);
