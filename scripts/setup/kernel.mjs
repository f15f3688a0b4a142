/** Debian's stock cloud kernel as the ELF file that VMMs boot directly, and the modules that the initramfs loads. */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAsset } from './asset.mjs';
import { run } from './command.mjs';
import { digest } from './digest.mjs';
import { moduleName, modulesInLoadOrder } from './kernel-modules.mjs';
import { unpackLz4Legacy } from './lz4-legacy.mjs';
import { mmdebstrap, quoted } from './mmdebstrap.mjs';
import { projectPath } from './paths.mjs';

const MAKER_VERSION = 2;

/** @typedef {{version: string, sha256: string, modules: string[]}} KernelFacts */

/** @param {import('./tasks.mjs').StepContext} context */
export async function ensureKernel(context) {
  /** @type {{suite: string, package: string, modules: string[]}} */
  const recipe = JSON.parse(await readFile(join(projectPath, 'images/kernel/kernel.json'), 'utf8'));
  return ensureAsset('kernel', { MAKER_VERSION, recipe }, async (directory) => {
    const work = join(directory, 'work');
    await mkdir(work);
    const deb = join(work, 'kernel.deb');
    const { suite, package: metaPackage } = recipe;
    const hooks = [downloadCommand(metaPackage), `download /kernel.deb ${quoted(deb)}`];
    await mmdebstrap({ suite, options: ['--variant=custom'], hooks, directory: work }, context);
    context.onLine('unpacking');
    await run(['dpkg-deb', '-x', deb, join(work, 'root')], { signal: context.signal });
    const [version] = await readdir(join(work, 'root/lib/modules'));
    if (version === undefined) throw new Error(`${deb} holds no modules`);
    const vmlinux = extractVmlinux(await readFile(join(work, 'root/boot', `vmlinuz-${version}`)));
    await writeFile(join(directory, 'vmlinux'), vmlinux);
    const paths = await modulesInLoadOrder(join(work, 'root/lib/modules', version), recipe.modules);
    const modules = paths.map((path, index) => `${String(index).padStart(2, '0')}-${moduleName(path)}.ko`);
    for (const [index, path] of paths.entries()) await rename(path, join(directory, modules[index] ?? ''));
    await rm(work, { recursive: true });
    return /** @type {KernelFacts} */ ({ version, sha256: digest(vmlinux), modules });
  });
}

/** The package that the meta package stands for, to `/kernel.deb` in `$1`. @param {string} metaPackage */
const downloadCommand = (metaPackage) =>
  [
    'cd "$1"',
    'export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"',
    `name=$(apt-cache depends --important ${quoted(metaPackage)} | sed -n 's/^ *Depends: //p' | head -n 1)`,
    'apt-get -q -o APT::Sandbox::User=root download "$name"',
    'mv ./linux-image-*.deb kernel.deb',
  ].join(' && ');

/**
 * The packed kernel inside a bzImage: offsets from the x86 boot protocol's header (setup_sects 0x1f1, payload_offset 0x248,
 * payload_length 0x24c), counted from the end of the real-mode sectors.
 * @param {Buffer} bzImage
 */
export function extractVmlinux(bzImage) {
  const start = ((bzImage[0x1f1] || 4) + 1) * 512 + bzImage.readUInt32LE(0x248);
  const vmlinux = unpackLz4Legacy(bzImage.subarray(start, start + bzImage.readUInt32LE(0x24c)));
  if (vmlinux.readUInt32BE(0) !== 0x7f454c46) throw new Error('the unpacked kernel is no ELF file');
  return vmlinux;
}
