import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { formatBytes, json, properties } from '../../output/format.ts';
import { timingsLine } from '../../output/run-summary.ts';

export function addRunsGetCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('get')
    .description('Show one run: its state, result, outputs and timings.')
    .argument('<id>')
    .action(async (id: string) => {
      const client = await clientOf(cli, command);
      const run = await client.runs.get(id);
      if (wantsJson(command)) {
        await cli.io.out(json(run));
        return;
      }
      const labels = Object.entries(run.labels ?? {}).map(([key, value]) => `${key}=${value}`);
      await cli.io.out(
        properties({
          id: run.id,
          state: run.state,
          'exit code': run.exit_code?.toString(),
          signal: run.signal,
          error: run.error === undefined ? undefined : `${run.error.code}: ${run.error.message}`,
          image: run.image,
          limits: `${run.limits.cpus} CPU, ${run.limits.ram_mb} MB memory, ${run.limits.storage_gb} GB disk, ${run.limits.timeout_ms} ms`,
          labels: labels.length === 0 ? undefined : labels.join(' '),
          created: run.created_at,
          started: run.started_at,
          finished: run.finished_at,
          timings: timingsLine(run.timings) || undefined,
        }),
      );
      for (const output of run.outputs)
        await cli.io.out(properties({ [output.kind]: `${output.path}  ${formatBytes(output.size_bytes)}` }));
    });
  addGlobalOptions(command);
}
