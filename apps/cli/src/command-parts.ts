/** Commands are loaded when the command line names them: to load all takes longer than most calls. */
import type { Command } from 'commander';
import type { Cli } from './cli.ts';

export interface CommandPart {
  /** What its commands are called, other names included. */
  words: readonly string[];
  load: () => Promise<(parent: Command, cli: Cli) => void | Promise<void>>;
}

const WITH_VALUE: ReadonlySet<string> = new Set(['-o', '--output', '--context', '--config', '--tenant']);
const EMBEDS_VALUE = /^(-o.|--(output|context|config|tenant)=)/;

/** The first words that are no options, up to an option that not every command has: of these, the first name commands. */
export function commandWords(argv: readonly string[]): string[] {
  const words: string[] = [];
  for (let at = 0; at < argv.length; at += 1) {
    const arg = argv[at] ?? '';
    if (!arg.startsWith('-')) words.push(arg);
    else if (WITH_VALUE.has(arg)) at += 1;
    else if (!EMBEDS_VALUE.test(arg)) break;
  }
  return words;
}

/** The part that the word names; all of them when it names none. */
export async function addNamed(
  parent: Command,
  cli: Cli,
  parts: readonly CommandPart[],
  word: string | undefined,
): Promise<void> {
  const named = parts.filter(({ words }) => word !== undefined && words.includes(word));
  const adds = await Promise.all((named.length > 0 ? named : parts).map(({ load }) => load()));
  for (const add of adds) await add(parent, cli);
}
