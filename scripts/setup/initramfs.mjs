/** The initramfs: the guest agent as `/init`, `/dev/null`, and `/modules/NN-name.ko` to be loaded in the order of their names. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAsset } from './asset.mjs';
import { cpioArchive } from './cpio.mjs';
import { digest } from './digest.mjs';

const MAKER_VERSION = 2;

/**
 * @param {import('./tasks.mjs').StepContext} _context
 * @param {import('./asset.mjs').Asset<import('./kernel.mjs').KernelFacts>} kernel
 * @param {import('./asset.mjs').Asset<{sha256: string}>} agent
 */
export async function ensureInitramfs(_context, kernel, agent) {
  return ensureAsset(
    'initramfs',
    { MAKER_VERSION, kernel: kernel.key, agent: agent.facts.sha256 },
    async (directory) => {
      const modules = await Promise.all(
        kernel.facts.modules.map(async (name) => ({
          path: `modules/${name}`,
          data: await readFile(join(kernel.path, name)),
        })),
      );
      const archive = cpioArchive([
        { path: 'init', mode: 0o755, data: await readFile(join(agent.path, 'fused')) },
        // The Go runtime opens it before the agent mounts anything, when the kernel has no console to give.
        { path: 'dev' },
        { path: 'dev/null', mode: 0o666, device: { major: 1, minor: 3 } },
        { path: 'modules' },
        ...modules,
      ]);
      await writeFile(join(directory, 'initramfs.cpio'), archive);
      return { sha256: digest(archive) };
    },
  );
}
