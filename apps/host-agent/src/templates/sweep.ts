/** Removing templates: what dead makers left, what nothing can ask for any more, and the least used ones when there are too many. */
import { randomBytes } from 'node:crypto';
import { readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@fuse/runtime';
import type { VmmDriver } from '../vmm/driver.ts';
import { MAKING_VM_DIRECTORY } from './make-template.ts';
import { tryLock } from './process-lock.ts';
import { DESCRIPTION_FILE, TemplateDescription } from './template-files.ts';

/** Shapes are the users' choice and each template takes a few hundred MB. */
const MAX_TEMPLATES = 24;
const KEY = /^[0-9a-f]{32}$/;
const LEFTOVER = /^\.(?:making|removed)-([0-9a-f]{32})-[0-9a-f]+$/;

export interface SweepOptions {
  directory: string;
  driver: VmmDriver;
  log: Logger;
  isWanted: (madeFrom: TemplateDescription['madeFrom']) => boolean;
  lockName: (key: string) => Promise<string>;
}

export async function sweepTemplates(options: SweepOptions): Promise<void> {
  for (const entry of await readdir(options.directory)) {
    const path = join(options.directory, entry);
    const leftoverOf = LEFTOVER.exec(entry)?.[1];
    if (leftoverOf !== undefined) {
      await underLock(await options.lockName(leftoverOf), async () => {
        // The maker's VM is a session of its own and may have outlived it.
        await (await options.driver.adopt(join(path, MAKING_VM_DIRECTORY)))?.destroy();
        await rm(path, { recursive: true, force: true });
        options.log.info({ entry }, 'template leftover removed');
      });
    } else if (KEY.test(entry) && !(await isWanted(path, options))) {
      await remove(options, entry);
    }
  }
}

/** What each of those that have their final name was made from. */
export async function listTemplates(directory: string): Promise<TemplateDescription['madeFrom'][]> {
  const keys = (await readdir(directory)).filter((entry) => KEY.test(entry));
  const all = await Promise.all(keys.map((key) => madeFrom(join(directory, key))));
  return all.filter((each) => each !== undefined);
}

/** Down to the bound, the least recently made or checked first; never `keep`. */
export async function makeRoom(options: {
  directory: string;
  log: Logger;
  keep: string;
  lockName: (key: string) => Promise<string>;
}): Promise<void> {
  const keys = (await readdir(options.directory)).filter((entry) => KEY.test(entry) && entry !== options.keep);
  const aged = await Promise.all(
    keys.map(async (key) => ({ key, usedAt: (await lastUse(join(options.directory, key))) ?? 0 })),
  );
  aged.sort((one, other) => one.usedAt - other.usedAt);
  for (const { key } of aged.slice(0, Math.max(0, aged.length + 1 - MAX_TEMPLATES))) await remove(options, key);
}

async function remove(
  options: { directory: string; log: Logger; lockName: (key: string) => Promise<string> },
  key: string,
): Promise<void> {
  await underLock(await options.lockName(key), async () => {
    const aside = join(options.directory, `.removed-${key}-${randomBytes(4).toString('hex')}`);
    await rename(join(options.directory, key), aside);
    await rm(aside, { recursive: true, force: true });
    options.log.info({ template: key }, 'template removed');
  });
}

/** Does nothing when somebody is at work on it: then it is no leftover. */
async function underLock(name: string, work: () => Promise<void>): Promise<void> {
  const held = await tryLock(name);
  if (held === undefined) return;
  try {
    await work();
  } finally {
    await held[Symbol.asyncDispose]();
  }
}

async function isWanted(directory: string, options: SweepOptions): Promise<boolean> {
  const from = await madeFrom(directory);
  return from !== undefined && options.isWanted(from);
}

/** Undefined: it cannot be read, and is none. */
async function madeFrom(directory: string): Promise<TemplateDescription['madeFrom'] | undefined> {
  try {
    const text = await readFile(join(directory, DESCRIPTION_FILE), 'utf8');
    return TemplateDescription.parse(JSON.parse(text)).madeFrom;
  } catch {
    return undefined;
  }
}

async function lastUse(directory: string): Promise<number | undefined> {
  return stat(join(directory, DESCRIPTION_FILE)).then(
    (each) => each.mtimeMs,
    () => undefined,
  );
}
