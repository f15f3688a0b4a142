import { runStates } from '@fuse/contract';
import type { Run, RunState } from '@fuse/sdk';
import { type Command, Option } from 'commander';
import { gatherLabel } from '../../args/key-value.ts';
import { parsePositiveInt } from '../../args/number.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { formatMs, json, table } from '../../output/format.ts';

export interface RunListFlags {
  state?: RunState;
  label?: Record<string, string>;
  limit?: number;
  cursor?: string;
  allPages?: boolean;
}

export function addRunsListCommand(parent: Command, cli: Cli): void {
  const command = addRunListOptions(parent.command('list').alias('ls').description('List runs, the newest first.'))
    .addHelpText('after', '\nExample:\n  fuse runs list --state running -o json | jq -r ".runs[].id"\n')
    .action((flags: RunListFlags) => listRuns(cli, command, flags));
  addGlobalOptions(command);
}

export const addRunListOptions = (command: Command): Command =>
  command
    .addOption(new Option('--state <state>', 'only those in this state').choices(runStates))
    .option('--label <key=value>', 'only those that carry this label; may be repeated', gatherLabel)
    .option('--limit <n>', 'how many at most (default 50, at most 200)', parsePositiveInt)
    .option('--cursor <cursor>', 'go on where an earlier list ended')
    .option('--all-pages', 'all of them');

export async function listRuns(cli: Cli, command: Command, flags: RunListFlags): Promise<void> {
  const client = await clientOf(cli, command);
  const { allPages, limit, cursor, state, label } = flags;
  const filter = { ...(state === undefined ? {} : { state }), ...(label === undefined ? {} : { labels: label }) };
  const { runs, nextCursor } =
    allPages === true
      ? { runs: await client.runs.list(filter), nextCursor: undefined }
      : await client.runs.listPage({
          ...filter,
          ...(limit === undefined ? {} : { limit }),
          ...(cursor === undefined ? {} : { cursor }),
        });
  if (wantsJson(command)) {
    await cli.io.out(json({ runs, ...(nextCursor === undefined ? {} : { next_cursor: nextCursor }) }));
    return;
  }
  if (runs.length === 0) cli.io.say('no runs');
  else await cli.io.out(table(['ID', 'STATE', 'EXIT', 'IMAGE', 'RAN', 'CREATED'], runs.map(row)));
  if (nextCursor !== undefined) cli.io.say(`there are more: --cursor ${nextCursor}, or --all-pages`);
}

const row = (run: Run): string[] => [
  run.id,
  run.state,
  run.exit_code === undefined ? '' : String(run.exit_code),
  run.image,
  run.timings.run_ms === undefined ? '' : formatMs(run.timings.run_ms),
  run.created_at,
];
