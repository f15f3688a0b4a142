import type { FleetStreamEvent } from '@fuse/sdk';
import type { Command } from 'commander';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { interruptSignal } from '../interrupt.ts';
import { healthText } from '../output/environment-text.ts';
import { json, printable } from '../output/format.ts';
import { refusalText } from '../output/network-text.ts';

const AFTER_HELP = `
Of every tenant with the master token, or of --tenant; with a key of its own. Lost connections are made again, and nothing is missed by that.

Examples:
  fuse events
  fuse events -o json | jq -r 'select(.state == "failed") | .vm_id + " " + .error'
  fuse events --after ID        go on after an event that was seen before
`;

export function addEventsCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('events')
    .description('Print what happens to all environments, as it happens, until it is interrupted.')
    .option('--after <id>', 'first what came after this event')
    .addHelpText('after', AFTER_HELP)
    .action(async ({ after }: { after?: string }) => {
      const client = await clientOf(cli, command);
      const options = { signal: interruptSignal(), ...(after === undefined ? {} : { lastEventId: after }) };
      for await (const event of client.events(options))
        await cli.io.out(wantsJson(command) ? json(event) : `${line(event)}\n`);
    });
  addGlobalOptions(command);
}

function line(event: FleetStreamEvent): string {
  if (!('vm_id' in event)) return `${event.updated_at}  events are missing from before here`;
  const { step } = event;
  const what = [
    event.updated_at,
    event.tenant_id,
    event.vm_id,
    event.event === 'step' && step !== undefined ? `${step.index + 1}/${step.total} ${step.key}` : event.state,
    event.health === undefined ? '' : healthText(event.health),
    event.network === undefined ? '' : refusalText(event.network),
    event.error ?? '',
  ];
  return what
    .filter((part) => part !== '')
    .map(printable)
    .join('  ');
}
