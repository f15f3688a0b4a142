/** `<FUSE_HOME>/assets/manifest.json`: what the host agent boots, and the programs that it starts. Written last and at once, so that it never names what is not there. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { flush } from './asset.mjs';
import { GO_PROGRAMS } from './go-program.mjs';
import { readRecipe } from './image.mjs';
import { assetsPath, manifestPath } from './paths.mjs';

/**
 * @param {import('./tasks.mjs').StepContext} _context
 * @param {import('./asset.mjs').Asset<import('./kernel.mjs').KernelFacts>} kernel
 * @param {import('./asset.mjs').Asset<{sha256: string}>} initramfs
 * @param {{[name in 'jailer' | 'gateway']: import('./asset.mjs').Asset<{sha256: string}>}} programs
 * @param {...import('./asset.mjs').Asset<import('./image.mjs').ImageFacts>} images
 */
export async function writeManifest(_context, kernel, initramfs, programs, ...images) {
  const text = `${JSON.stringify(
    {
      kernel: { path: join(kernel.path, 'vmlinux'), version: kernel.facts.version, sha256: kernel.facts.sha256 },
      initramfs: { path: join(initramfs.path, 'initramfs.cpio'), sha256: initramfs.facts.sha256 },
      programs: Object.fromEntries(
        Object.entries(programs).map(([name, { path, facts }]) => [
          name,
          { path: join(path, GO_PROGRAMS[/** @type {keyof typeof programs} */ (name)].program), sha256: facts.sha256 },
        ]),
      ),
      images: await Promise.all(
        images.map(async (image) => {
          const { name, sha256, sizeBytes } = image.facts;
          const { description, warm } = await readRecipe(name);
          return { name, path: join(image.path, `${name}.erofs`), digest: sha256, sizeBytes, description, warm };
        }),
      ),
    },
    null,
    2,
  )}\n`;
  if ((await readFile(manifestPath, 'utf8').catch(() => '')) === text) return { made: false };
  await writeFile(`${manifestPath}.new`, text);
  await flush(`${manifestPath}.new`);
  await rename(`${manifestPath}.new`, manifestPath);
  await flush(assetsPath);
  return { made: true };
}
