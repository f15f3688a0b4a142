/**
 * Snapshots, forks, pause and restore through the public API, beside a cold boot that repeats the work, for each size of guest and each
 * amount of memory that its work made dirty (a Python process that holds random bytes, and answers for them in every copy).
 *
 *   node bench/snapshots.mjs [--n 5] [--ram 256,1024] [--dirty 0,20,50,500] [--forks 10] [--depth 30] [--cold 3] [--phases] [--json]
 *   node bench/snapshots.mjs --n 1 --ram 256 --dirty 20 --forks 2 --depth 3 --cold 1        a small run
 *
 * `--dirty` in MiB; what does not fit half of a guest is left out. `--depth 0` leaves the chain out. `--phases` adds where the host
 * spent the time of the forks and of the resume.
 */
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { localStack, quantile } from './local-stack.mjs';
import { measureChain, measureCold, measureExport, measureRound } from './snapshot-rounds.mjs';

const { values } = parseArgs({
  options: {
    n: { type: 'string', default: '5' },
    ram: { type: 'string', default: '256,1024' },
    dirty: { type: 'string', default: '0,20,50,500' },
    forks: { type: 'string', default: '10' },
    depth: { type: 'string', default: '30' },
    cold: { type: 'string', default: '3' },
    phases: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const [n, forks, depth, cold] = [values.n, values.forks, values.depth, values.cold].map(Number);
const numbers = (/** @type {string} */ list) => list.split(',').map(Number);
const guests = numbers(values.ram).flatMap((ramMb) =>
  numbers(values.dirty)
    .filter((dirtyMib) => dirtyMib <= ramMb / 2)
    .map((dirtyMib) => ({ ramMb, dirtyMib })),
);

/** What the issue asks for, of a guest of 256 MiB with 20 MiB dirty. */
const GOALS = [
  { name: 'snapshot: pause window', belowMs: 100 },
  { name: 'fork -> command', belowMs: 400 },
  { name: 'resume -> command', belowMs: 250 },
];
const COLD = 'cold boot, work -> command';

const results = [];
const stack = await localStack({
  FUSE_HOST_CPUS: String(forks + 8),
  FUSE_HOST_RAM_MB: String((forks + 8) * Math.max(...guests.map(({ ramMb }) => ramMb))),
});
const { accelerator } = await (
  await fetch(`${stack.hostUrl}/v1/capacity`, { headers: { Authorization: `Bearer ${stack.hostToken}` } })
).json();
try {
  for (const guest of guests) {
    /** @type {Map<string, {unit: 'ms' | 'MiB', values: number[]}>} */
    const series = new Map();
    const add = (
      /** @type {string} */ name,
      /** @type {number | undefined} */ value,
      unit = /** @type {const} */ ('ms'),
    ) => {
      if (value === undefined) return;
      const known = series.get(name);
      if (known === undefined) series.set(name, { unit, values: [value] });
      else known.values.push(value);
    };
    const run = { stack, ...guest, forks, depth, phases: values.phases, add };
    await measureRound({ ...run, forks: 1, add: () => {} }); // the first of everything warms up
    for (let round = 0; round < cold; round++) add(COLD, await measureCold(run));
    for (let round = 0; round < n; round++) await measureRound(run);
    if (depth > 0) await measureChain({ ...run, rounds: n });
    await measureExport(run);
    report(guest, series);
  }
} finally {
  await stack[Symbol.asyncDispose]();
}
if (values.json) process.stdout.write(`${JSON.stringify({ rig: rig(), n, forks, depth, results })}\n`);

/** @param {{ramMb: number, dirtyMib: number}} guest @param {Map<string, {unit: 'ms' | 'MiB', values: number[]}>} series */
function report(guest, series) {
  process.stdout.write(`\nsnapshots, guest of ${guest.ramMb} MiB, ${guest.dirtyMib} MiB dirty; ${rig()}\n`);
  const width = Math.max(...[...series.keys()].map((name) => name.length));
  process.stdout.write(`${''.padEnd(width)}      p50      p95      p99      min    N\n`);
  const rows = [];
  for (const [name, { unit, values: each }] of series) {
    const [p50, p95, p99, min] = [0.5, 0.95, 0.99, 0].map((q) => quantile(each, q));
    rows.push({ name, unit, p50, p95, p99, min, n: each.length });
    const cells = [p50, p95, p99, min].map((value) => value.toFixed(1).padStart(9)).join('');
    process.stdout.write(`${name.padEnd(width)}${cells}${String(each.length).padStart(5)} ${unit}\n`);
  }
  results.push({ ...guest, rows });
  const p50Of = (/** @type {string} */ name) => rows.find((row) => row.name === name)?.p50 ?? Number.NaN;
  for (const name of ['fork -> command', 'resume -> command'])
    process.stdout.write(
      `${name}: ${(p50Of(COLD) / p50Of(name)).toFixed(1)} x faster than a cold boot with its work\n`,
    );
  if (guest.ramMb !== 256 || guest.dirtyMib !== 20) return;
  for (const { name, belowMs } of GOALS)
    process.stdout.write(`${name}: ${p50Of(name) < belowMs ? 'within' : 'NOT within'} ${belowMs} ms\n`);
}

function rig() {
  const load = loadavg().map((each) => each.toFixed(1));
  return `${cpus().length} x ${cpus()[0]?.model.trim()}, ${accelerator}, Node.js ${process.version}, load ${load.join(' ')}`;
}
