import { spawn } from 'node:child_process';
import type { FuseClient } from '@fuse/sdk';
import type { Command } from 'commander';
import { parseLocation } from '../../args/location.ts';
import { addGlobalOptions, type Cli, clientOf } from '../../cli.ts';
import { CliError, usageError } from '../../cli-error.ts';
import { temporaryCopy } from '../../files/temporary-copy.ts';
import { interruptSignal } from '../../interrupt.ts';
import { reasonOf } from '../../output/error-text.ts';
import { BrokenPipe } from '../../output/io.ts';

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
      const signal = AbortSignal.any([interruptSignal(), cli.io.brokenPipe]);
      const sides: Side[] = [];
      try {
        const client = await clientOf(cli, command);
        for (const text of [from, to]) sides.push(await sideOf(client, text, signal));
        const [one, other] = sides as [Side, Side]; // two were pushed
        process.exitCode = await diff(cli, one, other, signal);
      } catch (error) {
        signal.throwIfAborted();
        throw error instanceof BrokenPipe ? error : asTrouble(error);
      } finally {
        for (const side of sides) await side.remove();
      }
    })
    .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : TROUBLE_EXIT_CODE));
  addGlobalOptions(command, { output: false });
}

/** 1 would mean that they differ. */
function asTrouble(error: unknown): CliError {
  const hint = error instanceof CliError ? error.hint : undefined;
  return new CliError(reasonOf(error), {
    ...(hint === undefined ? {} : { hint }),
    exitCode: TROUBLE_EXIT_CODE,
    cause: error,
  });
}

async function sideOf(client: FuseClient, label: string, signal: AbortSignal): Promise<Side> {
  const location = parseLocation(label);
  if (location.kind === 'standard') throw usageError('- cannot be compared');
  if (location.kind === 'local') return { path: location.path, label, remove: async () => {} };
  try {
    const bytes = await client.environments.files(location.id).createReadStream(location.path, { signal });
    return { ...(await temporaryCopy(location.path, bytes)), label };
  } catch (cause) {
    signal.throwIfAborted();
    throw new CliError(`${label}: ${reasonOf(cause)}`, { cause });
  }
}

async function diff(cli: Cli, from: Side, to: Side, signal: AbortSignal): Promise<number> {
  const argv = ['-u', '--label', from.label, '--label', to.label, '--', from.path, to.path];
  const child = spawn('diff', argv, { stdio: ['ignore', 'pipe', 'inherit'], signal });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', (cause) => reject(new CliError(`cannot run diff: ${cause.message}`, { cause })));
    child.once('close', resolve);
  });
  ended.catch(() => {}); // awaited below
  for await (const chunk of child.stdout) await cli.io.out(chunk as Buffer); // no encoding is set
  return (await ended) ?? TROUBLE_EXIT_CODE;
}
