/** `local.json`: the stack that is up, for everybody who wants to talk to it. Readable by its owner only. */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import type { Home } from './home.ts';
import { startTimeOf } from './processes.ts';

const LocalStack = z.object({
  pid: z.number().int().positive(),
  /** See processes.ts. */
  start_time: z.string(),
  url: z.string(),
  host_url: z.string(),
  host_token: z.string(),
  /** Absent when it writes to a terminal. */
  log: z.string().optional(),
  started_at: z.string(),
});
export type LocalStack = z.infer<typeof LocalStack>;

/** What the file says, and whether that process is alive. Undefined when there is no file, or one that is cut off. */
export async function readLocalFile(home: Home): Promise<{ stack: LocalStack; alive: boolean } | undefined> {
  try {
    const stack = LocalStack.parse(JSON.parse(await readFile(home.localFile, 'utf8')));
    return { stack, alive: (await startTimeOf(stack.pid)) === stack.start_time };
  } catch {
    return undefined;
  }
}

export async function runningStack(home: Home): Promise<LocalStack | undefined> {
  const found = await readLocalFile(home);
  return found?.alive === true ? found.stack : undefined;
}

export async function writeLocalFile(home: Home, stack: LocalStack): Promise<void> {
  const partial = `${home.localFile}.partial`;
  await writeFile(partial, `${JSON.stringify(stack, null, 2)}\n`, { mode: 0o600 });
  await rename(partial, home.localFile);
}

export const removeLocalFile = (home: Home): Promise<void> => rm(home.localFile, { force: true });
