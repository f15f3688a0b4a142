/** Part of set-up: the templates that a host agent makes ahead, so that the first run starts from one and nothing is made beside it. */
import { mkdir, readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { AppError, DEFAULT_IMAGE, DEFAULT_SHAPE } from '@fuse/contract';
import { createLogger, type Logger } from '@fuse/runtime';
import type { ConfinementOptions } from './confinement/confinement.ts';
import { type Assets, imageNamed, loadAssets } from './images/assets.ts';
import { withOwnKernel } from './images/own-kernel.ts';
import { DEFAULT_NETWORK } from './network/config.ts';
import { HostNetwork } from './network/host-network.ts';
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
  await using network = await openNetwork(dataDirectory, assets, confinement, log);
  await using templates = new Templates({
    ...{ directory, driver, assets, log },
    withCard: (work, inner) => network.withIdleCard(work, inner),
  });
  await templates.sweep();
  const image = imageNamed(assets, DEFAULT_IMAGE);
  const { key } = await templates.ensure(image, DEFAULT_SHAPE, signal);
  const keys = [key];
  if (network.missing === undefined)
    keys.push((await templates.ensure(image, DEFAULT_SHAPE, signal, { networkCard: true })).key);
  return { made: keys.some((each) => !before.includes(each)) };
}

/** For cards that lead nowhere: no gateway is started. */
function openNetwork(
  dataDirectory: string,
  { programs }: Assets,
  { mode, uidBase }: ConfinementOptions,
  log: Logger,
): Promise<HostNetwork> {
  return HostNetwork.open({
    ...{ dataDirectory, log, config: DEFAULT_NETWORK },
    programs: programs.gateway && { gateway: programs.gateway.path, jailer: programs.jailer.path },
    gatewayUid: uidBase - 1,
    confinement: mode,
  });
}

async function lockUnlessHeld(dataDirectory: string): Promise<AsyncDisposable | undefined> {
  try {
    return await lockDataDirectory(dataDirectory);
  } catch (error) {
    if (error instanceof AppError && error.code === 'conflict') return undefined;
    throw error;
  }
}
