/**
 * The floor: a bare script that starts QEMU on a template and runs one command over the guest channel, with nothing else around it. What the
 * product adds to this is its own cost.
 *
 *   node bench/floor.mjs [--n 30] [--image base] [--cpus 1] [--ram 512] [--disk 2] [-- command …]
 *
 * Phases, in milliseconds from the start: `disk` the copy of the writable disk, `spawned` QEMU's process exists, `qmp` its control socket
 * answers, `running` the guest runs, `greeting` the guest's first bytes, `command` the command's exit; `again` is the same command once more, by
 * itself; `cpu` is QEMU's processor time up to `command`, which a busy machine does not stretch.
 */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { runCommand, startRawGuest, templateOf } from './raw-guest.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    n: { type: 'string', default: '30' },
    image: { type: 'string', default: 'base' },
    cpus: { type: 'string', default: '1' },
    ram: { type: 'string', default: '512' },
    disk: { type: 'string', default: '2' },
    json: { type: 'boolean', default: false },
  },
});
const argv = positionals.length > 0 ? positionals : ['true'];
const source = await templateOf({
  image: values.image,
  cpus: Number(values.cpus),
  ramMiB: Number(values.ram),
  diskGiB: Number(values.disk),
});

const work = await mkdtemp(join(source.dataDirectory, 'floor-'));
const phases = ['disk', 'spawned', 'qmp', 'running', 'greeting', 'command', 'again', 'cpu'];
/** @type {Record<string, number[]>} */
const samples = Object.fromEntries(phases.map((phase) => [phase, []]));
try {
  for (let round = 0; round < Number(values.n); round++) {
    const sample = await measure(join(work, String(round)));
    for (const phase of phases) samples[phase].push(sample[phase]);
  }
} finally {
  await rm(work, { recursive: true, force: true });
}
report();

/** @param {string} directory @returns {Promise<Record<string, number>>} */
async function measure(directory) {
  /** @type {Record<string, number>} */
  const at = {};
  const from = performance.now();
  const guest = await startRawGuest(source, directory, (phase) => {
    at[phase] = performance.now() - from;
  });
  try {
    await runCommand(guest.session, 'floor-1', argv);
    at.command = performance.now() - from;
    at.cpu = await cpuMs(guest.pid);
    const again = performance.now();
    await runCommand(guest.session, 'floor-2', argv);
    at.again = performance.now() - again;
    await guest.running;
    guest.session.destroy();
    return at;
  } finally {
    await guest.end();
  }
}

/** Nanosecond counts of all threads; /proc/<pid>/stat has hundredths of a second only. @param {number | undefined} pid */
async function cpuMs(pid) {
  let totalNs = 0;
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const schedstat = await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8');
    totalNs += Number(schedstat.split(' ')[0]);
  }
  return totalNs / 1e6;
}

function report() {
  const quantile = (/** @type {number[]} */ sorted, /** @type {number} */ q) =>
    sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)];
  const rows = phases.map((phase) => {
    const sorted = samples[phase].toSorted((one, other) => one - other);
    return {
      phase,
      p50: quantile(sorted, 0.5),
      p95: quantile(sorted, 0.95),
      p99: quantile(sorted, 0.99),
      min: sorted[0],
    };
  });
  if (values.json) {
    process.stdout.write(
      `${JSON.stringify({ n: Number(values.n), accelerator: source.driver.accelerator, shape: source.shape, rows })}\n`,
    );
    return;
  }
  const rig = `${cpus().length} x ${cpus()[0]?.model.trim()}, ${source.driver.accelerator}, ${source.shape.cpus} CPU, ${source.shape.memoryMiB} MiB`;
  process.stdout.write(`floor: restore, then \`${argv.join(' ')}\`; N=${values.n}; ${rig}\n`);
  for (const row of rows) {
    const cells = [row.p50, row.p95, row.p99, row.min].map((ms) => ms.toFixed(1).padStart(8));
    process.stdout.write(`${row.phase.padEnd(10)}${cells.join('')} ms\n`);
  }
  process.stdout.write('              p50     p95     p99     min\n');
}
