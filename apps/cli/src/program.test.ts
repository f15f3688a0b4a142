import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { commandWords } from './command-parts.ts';
import { processIo } from './output/io.ts';
import { createProgram } from './program.ts';

const io = processIo();
const programOf = (argv: readonly string[]): Promise<Command> => createProgram({ io, env: {}, argv });
const namesOf = (command: Command): string[] => [command.name(), ...command.aliases()];
const shapeOf = (command: Command): unknown => [namesOf(command), command.commands.map(shapeOf)];

test('each command is loaded by each of its names, and nothing else with it', async () => {
  const whole = await programOf([]);
  expect(whole.commands.length).toBeGreaterThan(20);
  for (const command of whole.commands)
    for (const name of namesOf(command)) {
      const { commands } = await programOf([name, '--help']);
      expect(commands.map(shapeOf)).toContainEqual(shapeOf(command));
      expect(commands.length).toBeLessThan(3);
    }
  const environment = whole.commands.find((each) => each.name() === 'environment');
  for (const command of environment?.commands ?? [])
    for (const name of namesOf(command)) {
      const [group] = (await programOf(['-o', 'json', 'env', name, 'x'])).commands;
      expect(group?.commands.map(namesOf)).toEqual([namesOf(command)]);
    }
});

test('a name that no command has loads all of them, for what is said of it', async () => {
  const { length } = (await programOf([])).commands;
  for (const argv of [['--help'], ['help', 'run'], ['enviroment', 'list'], ['--version']])
    expect((await programOf(argv)).commands).toHaveLength(length);
});

test('words are found behind the options that all commands have', () => {
  expect(commandWords(['-ojson', '--tenant', 'a', 'env', '--context=b', 'list', '--all', 'x'])).toEqual([
    'env',
    'list',
  ]);
});
