/**
 * Root file systems from the recipes `images/<name>/image.json`: Debian packages unpacked by mmdebstrap, `customize.sh`, then one
 * read-only compressed erofs file.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAsset } from './asset.mjs';
import { digest, digestFile } from './digest.mjs';
import { mmdebstrap, quoted } from './mmdebstrap.mjs';
import { projectPath } from './paths.mjs';

const MAKER_VERSION = 3;
const NO_UUID = '00000000-0000-0000-0000-000000000000';

/**
 * @typedef {{name: string, description: string, suite: string, packages: string[], dpkgOptions: string[], erofsOptions: string[], warm: string[][]}} Recipe
 * @typedef {{name: string, sha256: string, sizeBytes: number}} ImageFacts
 */

/** @param {string} name @returns {Promise<Recipe>} */
export const readRecipe = async (name) =>
  JSON.parse(await readFile(join(projectPath, 'images', name, 'image.json'), 'utf8'));

/** @param {string} name @param {import('./tasks.mjs').StepContext} context */
export async function ensureImage(name, context) {
  const recipe = await readRecipe(name);
  const customize = await readFile(join(projectPath, 'images', name, 'customize.sh'), 'utf8');
  const { suite, packages, dpkgOptions, erofsOptions } = recipe;
  const inputs = {
    MAKER_VERSION,
    suite,
    packages,
    dpkgOptions,
    erofsOptions,
    customize: digest(customize),
  };
  return ensureAsset(`image-${name}`, inputs, async (directory) => {
    const image = join(directory, `${name}.erofs`);
    await mmdebstrap(
      {
        suite,
        options: [
          '--variant=apt',
          `--include=${packages.join(',')}`,
          ...dpkgOptions.map((option) => `--dpkgopt=${option}`),
        ],
        hooks: [
          // By text: in user namespaces the hook may not enter the project's folder.
          `sh -c ${quoted(customize)} customize "$1"`,
          `unshare --mount sh -euc ${quoted(packCommand(recipe))} pack "$1"`,
          `download /.fuse-image ${quoted(image)}`,
        ],
        directory,
      },
      context,
    );
    const { size } = await stat(image);
    return /** @type {ImageFacts} */ ({ name, sha256: await digestFile(image), sizeBytes: size });
  });
}

/**
 * The image out of the chroot `$1`, to `/.fuse-image` in it. Hooks run with /proc, /sys and /dev mounted there; a bind mount without
 * what is mounted below shows the bare tree.
 * @param {Recipe} recipe
 */
function packCommand({ erofsOptions }) {
  const options = [
    '--quiet',
    '--preserve-mtime',
    `-U${NO_UUID}`,
    ...erofsOptions,
    '--exclude-path=.fuse-image',
    '--exclude-regex=^(run|tmp)/.*',
  ];
  return `mount --bind "$1" "$1/mnt" && mkfs.erofs ${options.map(quoted).join(' ')} "$1/.fuse-image" "$1/mnt"`;
}
