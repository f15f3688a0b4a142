import type { Command } from 'commander';
import { parseSecondsOrDuration } from '../../args/duration.ts';
import { gatherPair } from '../../args/key-value.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../../cli.ts';
import { longCall } from '../../long-call.ts';
import { json } from '../../output/format.ts';
import { snapshotText } from '../../output/snapshot-text.ts';

interface Flags {
  comment?: string;
  mode?: string;
  name?: string;
  retention?: number;
  metadata?: Record<string, string>;
  memory: boolean;
  export?: true;
  exportRef?: string;
}

const AFTER_HELP = `
The environment stands still for a moment ("stood still") and runs on.

Examples:
  fuse snapshot create fuse-demo
  fuse snapshot create fuse-demo --name installed --retention 7d --metadata commit=1f3a9c
  id=$(fuse snapshot create fuse-demo --export -o json | jq -r .id)
  fuse snapshot create fuse-demo --no-memory      the disk alone; what starts from it boots
`;

export function addSnapshotCreateCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('create')
    .description('Take a snapshot of a running environment; done when it is safe on disk.')
    .argument('<environment>', 'its id')
    .option('--comment <text>', 'what it is, for people')
    .option('--name <name>', 'find it again by it: fuse snapshot list --name NAME')
    .option('--mode <word>', 'what kind it is (default manual)')
    .option(
      '--retention <time>',
      'delete it after so many seconds, or 12h, 7d … (default: kept)',
      parseSecondsOrDuration,
    )
    .option('--metadata <key=value>', 'kept with it; may be repeated', gatherPair)
    .option('--no-memory', 'the disk alone, without what runs')
    .option('--export', 'also into the object store, so that it outlives its host')
    .option('--export-ref <ref>', 'a note on where it is kept elsewhere')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, flags: Flags) => {
      const client = await clientOf(cli, command);
      const request = {
        comment: flags.comment,
        mode: flags.mode,
        name: flags.name,
        retention_seconds: flags.retention,
        metadata: flags.metadata,
        export_ref: flags.exportRef,
        ...(flags.memory ? {} : { include_memory: false }),
        export: flags.export,
      };
      const snapshot = await longCall(
        cli,
        { doing: `taking a snapshot of ${id}`, lookAgain: `fuse snapshot list --vm-id ${id}` },
        (signal) => client.snapshots.create(id, request, { signal }),
      );
      await cli.io.out(wantsJson(command) ? json(snapshot) : snapshotText(snapshot));
    });
  addGlobalOptions(command);
}
