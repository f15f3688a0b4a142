import type { Command } from 'commander';
import { addGlobalOptions, type Cli, wantsJson } from '../cli.ts';
import { spawnPart } from '../spawn-part.ts';

export function addDoctorCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('doctor')
    .description('Check whether this machine can run microVMs, with a fix for each thing that is missing.')
    .option('--json', 'as JSON')
    .action(async (flags: { json?: boolean }) => {
      const asJson = flags.json === true || wantsJson(command);
      process.exitCode = await spawnPart('apps/host-agent/bin/fuse-doctor.js', asJson ? ['--json'] : [], cli.env);
    });
  addGlobalOptions(command);
}
