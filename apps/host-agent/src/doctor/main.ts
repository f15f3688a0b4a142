/** `fuse doctor [--json]`: exit code 1 when something fails, 0 when it only warns. */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { createLogger } from '@fuse/runtime';
import { loadAssets } from '../images/assets.ts';
import { openQemuDriver } from '../vmm/qemu/qemu-driver.ts';
import { diagnose } from './diagnose.ts';
import { anyFailed, reportText } from './report.ts';

export async function main(args: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<number> {
  const home = resolve(env.FUSE_HOME || join(homedir(), '.fuse'));
  const abort = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => abort.abort(new Error(name)));
  let accelerator: Promise<'kvm' | 'tcg'> | undefined;
  const findings = await diagnose({
    home,
    env,
    signal: abort.signal,
    accelerator: () => {
      accelerator ??= probeAccelerator(home);
      return accelerator;
    },
  });
  process.stdout.write(
    args.includes('--json') ? `${JSON.stringify({ checks: findings }, null, 2)}\n` : reportText(findings),
  );
  return anyFailed(findings) ? 1 : 0;
}

async function probeAccelerator(home: string): Promise<'kvm' | 'tcg'> {
  const { kernel } = await loadAssets(join(home, 'assets', 'manifest.json'));
  const log = createLogger({ name: 'fuse-doctor', level: 'silent' });
  const driver = await openQemuDriver({ dataDirectory: join(home, 'host'), kernelPath: kernel.path, log });
  return driver.accelerator;
}
