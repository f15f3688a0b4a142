import { spawn } from 'node:child_process';
import type { FuseClient } from '@fuse/sdk';
import type { Command } from 'commander';
import { type Location, parseLocation } from '../../args/location.ts';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { CliError } from '../../cli-error.ts';
import { temporaryCopy } from '../../files/temporary-copy.ts';

const AFTER_HELP = `
Exits as diff does: 0 they are the same, 1 they differ, 2 they could not be compared.
Examples:
  fuse environment diff fuse-demo:src/app.py app.py
  fuse environment diff fuse-demo:/etc/hosts fuse-other:/etc/hosts
`;
const TROUBLE_EXIT_CODE = 2;

interface Side {
  path: string;
  label: string;
  remove(): Promise<void>;
}

export function addEnvironmentDiffCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('diff')
    .description('Show how two files differ, as a unified diff: of environments, or here.')
    .argument('<from>', 'ID:PATH, or a path here')
    .argument('<to>', 'ID:PATH, or a path here')
    .addHelpText('after', AFTER_HELP)
    .action(async (from: string, to: string) => {
      const client = await clientOf(cli, command);
      const sides: Side[] = [];
      try {
        for (const text of [from, to]) sides.push(await sideOf(client, text, parseLocation(text)));
        const [one, other] = sides as [Side, Side]; // two were pushed
        process.exitCode = await diff(cli, one, other);
      } finally {
        for (const side of sides) await side.remove();
      }
    });
  addGlobalOptions(command);
}

async function sideOf(client: FuseClient, label: string, location: Location): Promise<Side> {
  if (location.kind === 'standard') throw new CliError('- cannot be compared', { exitCode: TROUBLE_EXIT_CODE });
  if (location.kind === 'local') return { path: location.path, label, remove: async () => {} };
  try {
    const bytes = await client.environments.files(location.id).readFile(location.path);
    return { ...(await temporaryCopy(location.path, bytes)), label };
  } catch (cause) {
    throw new CliError(`${label}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      exitCode: TROUBLE_EXIT_CODE,
      cause,
    });
  }
}

async function diff(cli: Cli, from: Side, to: Side): Promise<number> {
  const argv = ['-u', '--label', from.label, '--label', to.label, '--', from.path, to.path];
  const child = spawn('diff', argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', (cause) =>
      reject(new CliError(`cannot run diff: ${cause.message}`, { exitCode: TROUBLE_EXIT_CODE, cause })),
    );
    child.once('close', resolve);
  });
  ended.catch(() => {}); // awaited below
  for await (const chunk of child.stdout) await cli.io.out(chunk as Buffer); // no encoding is set
  return (await ended) ?? TROUBLE_EXIT_CODE;
}
