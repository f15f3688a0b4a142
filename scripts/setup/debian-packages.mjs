/** Debian packages that this machine needs. Installed as root or through sudo; otherwise named exactly. */
import { readFile } from 'node:fs/promises';
import { run, SetupError, tryRun } from './command.mjs';
import { rootAccess } from './root.mjs';

/** Without root, mmdebstrap needs it. */
const ROOTLESS_PACKAGE = 'uidmap';
/** What running and building microVMs needs. */
export const MACHINE_PACKAGES = [
  ...['qemu-system-x86', 'mmdebstrap', 'erofs-utils', 'e2fsprogs', 'debian-archive-keyring'],
  ...['nftables', 'iproute2'],
];

// biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query fills it in
const DPKG_FORMAT = '${Package}\\t${db:Status-Status}\\n';

/**
 * @param {string[]} packages
 * @param {import('./tasks.mjs').StepContext} context
 */
export async function ensureDebianPackages(packages, { signal, onLine }) {
  const access = await rootAccess();
  const wanted = access.kind === 'none' ? [...packages, ROOTLESS_PACKAGE] : packages;
  await requireDebian(wanted);
  const missing = await notInstalled(wanted);
  if (missing.length === 0) return { made: false };
  const apt = ['apt-get', '-q', '-o', 'DPkg::Lock::Timeout=300'];
  if (access.kind === 'none') throw mustBeInstalled(missing);
  const env = { DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' };
  const asRoot = [...access.prefix, 'env', ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
  await run([...asRoot, ...apt, 'update'], { signal, onLine });
  // Never cut short: half-configured packages would be the user's to repair.
  await run([...asRoot, ...apt, 'install', '--no-install-recommends', '-y', '-o', 'Dpkg::Use-Pty=0', ...missing], {
    onLine,
  });
  const still = await notInstalled(missing);
  if (still.length > 0) throw new SetupError(`apt-get did not install ${still.join(' ')}`);
  return { made: true, note: missing.join(' ') };
}

/** @param {string[]} missing */
function mustBeInstalled(missing) {
  return new SetupError(`these Debian packages are missing: ${missing.join(' ')}`, {
    hint: `neither root nor a password-less sudo is at hand. Install them and start again:\n  sudo apt-get update && sudo apt-get install --no-install-recommends -y ${missing.join(' ')}`,
  });
}

/**
 * For whoever has to install things himself: what is missing beside Go is said with it, not after it.
 * @param {unknown} error @param {string[]} packages
 */
export async function withMissingPackages(error, packages) {
  if (!(error instanceof SetupError) || (await rootAccess()).kind !== 'none') return error;
  const missing = await notInstalled([...packages, ROOTLESS_PACKAGE]);
  if (missing.length === 0) return error;
  const more = mustBeInstalled(missing);
  return new SetupError(`${error.message}; and ${more.message}`, { hint: `${error.hint}\n${more.hint}`, cause: error });
}

/** @param {string[]} packages @returns {Promise<string[]>} */
export async function notInstalled(packages) {
  const listed = (await tryRun(['dpkg-query', '-W', '-f', DPKG_FORMAT])) ?? '';
  const installed = new Set(
    listed
      .split('\n')
      .map((line) => line.split('\t'))
      .filter(([, status]) => status === 'installed')
      .map(([name]) => name),
  );
  return packages.filter((name) => !installed.has(name));
}

/** @param {string[]} packages */
async function requireDebian(packages) {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  if (/^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(release) && process.arch === 'x64') return;
  throw new SetupError(
    `set-up knows Debian and Ubuntu on amd64; this is ${/^PRETTY_NAME="?([^"\n]*)/m.exec(release)?.[1] ?? process.platform} on ${process.arch}`,
    {
      hint: `what is needed is what these Debian packages hold: ${packages.join(', ')}`,
    },
  );
}
