/** What a Firecracker's machine is, in `firecracker.json` in its directory: for whoever adopts it. Written before anything is started, and once: a directory has one VM. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';

const RECORD_FILE = 'firecracker.json';

const MachineRecord = z.object({
  /** Of the program, for which the jailer names its directory. */
  programName: z.string(),
  memoryMiB: z.number().int().positive(),
  /** A restored VM's memory is a private mapping of a file, that of one that booted is nowhere but in its process. */
  memory: z.enum(['restored', 'booted']),
  /** Where the memory of a template goes. */
  sharedMemoryPath: z.string().optional(),
  consolePath: z.string().optional(),
});
export type MachineRecord = z.infer<typeof MachineRecord>;

export async function writeRecord(directory: string, record: MachineRecord): Promise<void> {
  await writeFile(join(directory, RECORD_FILE), JSON.stringify(record), { flag: 'wx', mode: 0o600 });
}

export async function readRecord(directory: string): Promise<MachineRecord | undefined> {
  try {
    return MachineRecord.parse(JSON.parse(await readFile(join(directory, RECORD_FILE), 'utf8')));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
