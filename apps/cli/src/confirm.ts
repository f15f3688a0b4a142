/** Asks before something is destroyed. */
import { createInterface } from 'node:readline/promises';
import { CliError } from './cli-error.ts';

export async function confirm(question: string, yes: boolean): Promise<void> {
  if (yes) return;
  if (process.stdin.isTTY === true && process.stderr.isTTY === true) {
    const terminal = createInterface({ input: process.stdin, output: process.stderr });
    const answer = await terminal.question(`${question} [y/N] `).finally(() => terminal.close());
    if (/^y(es)?$/i.test(answer.trim())) return;
  }
  throw new CliError('aborted (use --yes to skip confirmation)');
}
