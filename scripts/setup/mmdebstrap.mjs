/**
 * Debian packages of any release, fetched and verified by mmdebstrap without touching this machine's own package system, on Ubuntu too. It
 * knows Debian's mirrors; FUSE_DEBIAN_MIRROR names another. Proxies are those of this machine's apt. It works as root, through sudo,
 * and without either in user namespaces.
 */
import { run } from './command.mjs';
import { rootAccess } from './root.mjs';

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

/**
 * @typedef {object} Order
 * @property {string} suite
 * @property {string[]} options
 * @property {string[]} hooks  shell commands run at the end with the root file system in `$1`, or `download` from it
 * @property {string} directory  of ours, for what is big
 */

/** @param {Order} order @param {import('./tasks.mjs').StepContext} context */
export async function mmdebstrap({ suite, options, hooks, directory }, { signal, onLine }) {
  const access = await rootAccess();
  const mirror = process.env.FUSE_DEBIAN_MIRROR;
  const argv = [
    ...access.prefix,
    // In user namespaces the root file system must lie where others may enter, which /tmp is.
    ...(access.kind === 'none' ? [] : ['env', `TMPDIR=${directory}`]),
    'mmdebstrap',
    `--mode=${access.kind === 'none' ? 'unshare' : 'root'}`,
    '--format=null',
    `--keyring=${KEYRING}`,
    '--aptopt=Acquire::Languages "none"',
    ...options,
    ...hooks.map((hook) => `--customize-hook=${hook}`),
    suite,
    '/dev/null',
    ...(mirror ? [mirror] : []),
  ];
  await run(argv, { signal, onLine });
}

/** One word for the shell that hooks are given to. @param {string} text */
export const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
