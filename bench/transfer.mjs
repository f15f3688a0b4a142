/**
 * 100 MiB up and down: client -> object store -> guest (an input), and guest -> object store -> client (an output).
 *
 *   node bench/transfer.mjs [N=5] [MiB=100]
 */
import { randomBytes } from 'node:crypto';
import { localStack, quantile, report, timed } from './local-stack.mjs';

const n = Number(process.argv[2] ?? 5);
const mib = Number(process.argv[3] ?? 100);
const content = randomBytes(mib * 1024 * 1024);
/** @type {Record<string, number[]>} */
const series = { 'upload to the store': [], 'store -> guest': [], 'guest -> store': [], 'download from the store': [] };

const stack = await localStack();
try {
  for (let round = 0; round < n; round++) {
    const upload = await timed(() => stack.client.files.upload(content));
    const run = await stack.client.runs.create({
      cmd: ['true'],
      files: [{ path: 'big', file_id: upload.value.id }],
      outputs: ['big'],
      limits: { ram_mb: 512 },
      wait: true,
    });
    if (run.state !== 'succeeded') throw new Error(`the run ${run.state}: ${run.error?.message ?? run.stderr}`);
    const empty = await stack.client.runs.create({ cmd: ['true'], limits: { ram_mb: 512 }, wait: true });
    const download = await timed(() => stack.client.runs.outputs.download(run.id, 'big'));
    series['upload to the store']?.push(upload.ms);
    series['store -> guest']?.push((run.timings.start_ms ?? 0) - (empty.timings.start_ms ?? 0));
    series['guest -> store']?.push((run.timings.save_ms ?? 0) - (empty.timings.save_ms ?? 0));
    series['download from the store']?.push(download.ms);
  }
} finally {
  await stack[Symbol.asyncDispose]();
}
report(`${mib} MiB each way`, series);
for (const [name, values] of Object.entries(series))
  process.stdout.write(`${name}: ${(mib / (quantile(values, 0.5) / 1000)).toFixed(0)} MiB/s (p50)\n`);
