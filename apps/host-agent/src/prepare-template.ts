/** Part of set-up: the template of the default image in the default shape, so that the first run starts from it. */
import { mkdir, readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { AppError, DEFAULT_IMAGE, DEFAULT_SHAPE } from '@fuse/contract';
import { createLogger } from '@fuse/runtime';
import { imageNamed, loadAssets } from './images/assets.ts';
import { withOwnKernel } from './images/own-kernel.ts';
import { Templates } from './templates/templates.ts';
import { openDriver } from './vmm/open-driver.ts';
import { vmmConfigFromEnv } from './vmm/vmm-config.ts';
import { lockDataDirectory } from './vms/data-lock.ts';

export interface PreparedTemplate {
  made: boolean;
  note?: string;
}

export async function prepareTemplate(env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<PreparedTemplate> {
  const { confinement, ...vmm } = vmmConfigFromEnv(env);
  const home = env.FUSE_HOME || join(homedir(), '.fuse');
  const dataDirectory = join(home, 'host');
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  const lock = await lockUnlessHeld(dataDirectory);
  if (lock === undefined) return { made: false, note: 'left to the host agent, which is running' };
  await using _lock = lock;
  const log = createLogger({ name: 'prepare-template', level: 'silent' });
  const assets = await withOwnKernel(await loadAssets(join(home, 'assets', 'manifest.json')), vmm.kernelPath);
  const driver = await openDriver({ vmm, confinement, dataDirectory, kernelPath: assets.kernel.path, log });
  const directory = join(dataDirectory, 'templates');
  const before = await readdir(directory).catch((): string[] => []);
  await using templates = new Templates({ directory, driver, assets, log });
  await templates.sweep();
  const { key } = await templates.ensure(imageNamed(assets, DEFAULT_IMAGE), DEFAULT_SHAPE, signal);
  return { made: !before.includes(key) };
}

async function lockUnlessHeld(dataDirectory: string): Promise<AsyncDisposable | undefined> {
  try {
    return await lockDataDirectory(dataDirectory);
  } catch (error) {
    if (error instanceof AppError && error.code === 'conflict') return undefined;
    throw error;
  }
}
