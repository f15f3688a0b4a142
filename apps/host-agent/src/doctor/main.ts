/** `fuse doctor [--json]`: exit code 1 when something fails, 0 when it only warns. */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { createLogger } from '@fuse/runtime';
import { loadAssets } from '../images/assets.ts';
import { withOwnKernel } from '../images/own-kernel.ts';
import type { VmmDriver } from '../vmm/driver.ts';
import { openDriver } from '../vmm/open-driver.ts';
import { vmmConfigFromEnv } from '../vmm/vmm-config.ts';
import { diagnose } from './diagnose.ts';
import { anyFailed, reportText } from './report.ts';

export async function main(args: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<number> {
  const home = resolve(env.FUSE_HOME || join(homedir(), '.fuse'));
  const abort = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => abort.abort(new Error(name)));
  let vmm: Promise<VmmDriver> | undefined;
  const findings = await diagnose({
    home,
    env,
    root: '/',
    signal: abort.signal,
    vmm: () => {
      vmm ??= probe(home, env);
      return vmm;
    },
  });
  process.stdout.write(
    args.includes('--json') ? `${JSON.stringify({ checks: findings }, null, 2)}\n` : reportText(findings),
  );
  return anyFailed(findings) ? 1 : 0;
}

async function probe(home: string, env: NodeJS.ProcessEnv): Promise<VmmDriver> {
  const { confinement, ...vmm } = vmmConfigFromEnv(env);
  const assets = await loadAssets(join(home, 'assets', 'manifest.json'));
  const { kernel } = await withOwnKernel(assets, vmm.kernelPath);
  const log = createLogger({ name: 'fuse-doctor', level: 'silent' });
  return openDriver({ vmm, confinement, dataDirectory: join(home, 'host'), kernelPath: kernel.path, log });
}
