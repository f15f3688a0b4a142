import type { AuditEntry, AuditFilter } from '@fuse/sdk';
import type { Command } from 'commander';
import { parsePositiveInt } from '../args/number.ts';
import { addPageOptions, type PageFlags, pageOf } from '../args/pages.ts';
import { parseTime } from '../args/time.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { interruptSignal } from '../interrupt.ts';
import { json, jsonLine, table } from '../output/format.ts';

interface Flags extends PageFlags, AuditFilter {
  export?: true;
}

const AFTER_HELP = `
Every call that changes something is in it, refused ones too, with who called, what it was about and what came of it. With the master token that of every tenant, or of --tenant; a key of scope
admin sees its own tenant's.

Examples:
  fuse audit --from 24h --status 403                      who was refused something
  fuse audit --target fuse-demo                           what was done to it
  fuse audit --tenant acme --from 2026-01-01 --export > january.ndjson
`;

export function addAuditCommand(parent: Command, cli: Cli): void {
  const command = addPageOptions(parent.command('audit').description('Show who changed what, the newest first.'))
    .option('--from <time>', 'since then: 2026-01-31T12:00:00Z, 2026-01-31, or 24h for a day ago', parseTime(Date.now))
    .option('--to <time>', 'until then', parseTime(Date.now))
    .option('--actor <id>', 'only what this API key or environment did')
    .option('--target <id>', 'only what was about this')
    .option('--route <route>', 'only this route or what begins so: /v1/environments, or "POST /v1/environments"')
    .option('--status <code>', 'only what was answered so, such as 403', parsePositiveInt)
    .option('--export', 'all that match, the oldest first, as JSON, one entry a line')
    .addHelpText('after', AFTER_HELP)
    .action(async (flags: Flags) => {
      const { audit } = await clientOf(cli, command);
      const { from, to, actor, target, route, status } = flags;
      const filter = { from, to, actor, target, route, status };
      if (flags.export === true) {
        for await (const entry of audit.export({ ...filter, signal: interruptSignal() }))
          await cli.io.out(jsonLine(entry));
        return;
      }
      const { entries, nextCursor } =
        flags.allPages === true
          ? { entries: await audit.list(filter), nextCursor: undefined }
          : await audit.listPage({ ...filter, ...pageOf(flags) });
      if (wantsJson(command)) {
        await cli.io.out(json({ entries, next_cursor: nextCursor }));
        return;
      }
      if (entries.length === 0) cli.io.say('no entries');
      else await cli.io.out(table(['AT', 'TENANT', 'ACTOR', 'ROUTE', 'TARGET', 'STATUS', 'CODE'], entries.map(row)));
      if (nextCursor !== undefined) cli.io.say(`there are more: --cursor ${nextCursor}, or --all-pages`);
    });
  addGlobalOptions(command);
}

const row = ({
  at,
  tenant_id = '',
  actor_kind,
  actor,
  route,
  target = '',
  status,
  code = '',
}: AuditEntry): string[] => [
  at,
  tenant_id,
  actor === undefined ? actor_kind : `${actor_kind} ${actor}`,
  route,
  target,
  String(status),
  code,
];
