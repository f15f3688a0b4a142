/**
 * Environments come and go, 10,000 times, in every way in which clients make them: what is left of them in the process, on the machine and in the database.
 *
 *   node bench/leaks.mjs [--n 10000] [--callers 8] [--warm-up 1000]
 *
 * Orchestrator, host (which starts processes in place of VMs) and callers are this one process, over PostgreSQL without fsync. Memory is what is left after garbage is collected.
 */
import { parseArgs } from 'node:util';
import { openDatabase } from '../apps/orchestrator/dist/db/open.js';
import { quiet } from '../apps/orchestrator/dist/db/test-database.js';
import { churn, startForgetful, whatIsLeft } from '../apps/orchestrator/dist/environments/churn-testing.js';
import { timed } from './local-stack.mjs';

const { values } = parseArgs({
  options: {
    n: { type: 'string', default: '10000' },
    callers: { type: 'string', default: '8' },
    'warm-up': { type: 'string', default: '1000' },
  },
});
const lives = Number(values.n);
const atOnce = Number(values.callers);
const system = await startForgetful();
const db = await openDatabase(system.location, quiet);
try {
  await churn(system.call, { lives: Number(values['warm-up']), atOnce, round: 'warm-up' });
  const before = await whatIsLeft(system, db);
  const { ms } = await timed(() => churn(system.call, { lives, atOnce, round: 'round' }));
  const after = await whatIsLeft(system, db);
  const MiB = 1024 * 1024;
  const lines = /** @type {const} */ ([
    ['heap, MiB', before.heapBytes / MiB, after.heapBytes / MiB],
    ['resident, MiB', before.held.rssBytes / MiB, after.held.rssBytes / MiB],
    ['descriptors', before.held.descriptors, after.held.descriptors],
    ['threads', before.held.threads, after.held.threads],
    ['processes', before.held.processes, after.held.processes],
    ['mounts', before.held.mounts, after.held.mounts],
    ...Object.keys(after.rows).map((table) => [`rows in ${table}`, before.rows[table], after.rows[table]]),
  ]);
  process.stdout.write(`${lives} environments in ${(ms / 1000).toFixed(0)} s, ${atOnce} at once\n`);
  for (const [what, one, other] of lines)
    process.stdout.write(`${String(what).padEnd(26)} ${format(one).padStart(8)} -> ${format(other).padStart(8)}\n`);
} finally {
  await db[Symbol.asyncDispose]();
  await system[Symbol.asyncDispose]();
}
process.exit(0);

/** @param {number | string | undefined} value */
function format(value) {
  return typeof value === 'number' ? String(Math.round(value * 10) / 10) : String(value);
}
