import { homedir } from 'node:os';
import { join } from 'node:path';
import { AppError } from '@fuse/contract';
import { describe, it } from 'vitest';
import { loadAssets } from '../../images/assets.ts';
import { describeDriver } from '../driver.contract.ts';
import { openFirecrackerDriver } from '../open-driver.ts';
import { testDataDirectory, testLog } from '../test-machines.ts';
import { vmmConfigFromEnv } from '../vmm-config.ts';

const vmm = vmmConfigFromEnv(process.env);
const built = new URL('../../../dist/vmm/open-driver.js', import.meta.url);

/** Undefined: a VM boots in it here. */
async function whyNot(): Promise<string | undefined> {
  const { kernel } = await loadAssets(
    join(process.env.FUSE_HOME ?? join(homedir(), '.fuse'), 'assets', 'manifest.json'),
  );
  try {
    await openFirecrackerDriver({ vmm, dataDirectory: testDataDirectory, kernelPath: kernel.path, log: testLog });
    return undefined;
  } catch (error) {
    if (error instanceof AppError) return error.message;
    throw error;
  }
}

const reason = await whyNot();
if (reason !== undefined)
  describe('the Firecracker driver', () => {
    it.skip(`is not run on real VMs here: ${reason}`, () => {});
  });
else
  describeDriver('Firecracker', {
    open: (options) => openFirecrackerDriver({ ...options, vmm }),
    openDriverScript: `
      import { openFirecrackerDriver } from ${JSON.stringify(built.href)};
      const log = { info() {}, warn() {}, error() {} };
      const vmm = ${JSON.stringify(vmm)};
      const openDriver = (options) => openFirecrackerDriver({ ...options, vmm, log });`,
    identityFile: 'vmm.json',
    reportsHowItEnded: false,
    offKey: 'b',
  });
