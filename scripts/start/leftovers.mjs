/** What a local stack that is down must not have left on this machine. */
import { readdir, readFile, readlink } from 'node:fs/promises';

/**
 * A line for each VMM that works in `home` or was started with a path in its VMs' folder (its assets may be shared with other homes),
 * each mount in it, and each network link or named network namespace of ours.
 * @param {string} home
 * @returns {Promise<string[]>}
 */
export async function leftovers(home) {
  const lists = await Promise.all([
    processes(home),
    mounts(home),
    names('/sys/class/net', 'network link'),
    names('/run/netns', 'network namespace'),
  ]);
  return lists.flat();
}

/** @param {string} home */
async function processes(home) {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const inHome = (/** @type {string} */ path) => path === home || path.startsWith(`${home}/`);
  const found = await Promise.all(
    pids.map(async (pid) => {
      // A process that ends meanwhile, or is not ours to look at, has neither.
      const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
      const directory = await readlink(`/proc/${pid}/cwd`).catch(() => '');
      const isVmm = /(^|\/)(qemu-system-|firecracker)/.test(words[0] ?? '');
      const concerns = inHome(directory) || words.some((word) => word.includes(`${home}/host/`));
      return isVmm && concerns ? [`process ${pid}: ${words.join(' ').slice(0, 120)}`] : [];
    }),
  );
  return found.flat();
}

/** @param {string} home */
async function mounts(home) {
  const points = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').map((line) => line.split(' ')[4] ?? '');
  return points.filter((point) => point.startsWith(`${home}/`)).map((point) => `mount ${point}`);
}

/** @param {string} directory @param {string} kind */
async function names(directory, kind) {
  const all = await readdir(directory).catch(() => /** @type {string[]} */ ([]));
  return all.filter((name) => name.startsWith('fuse')).map((name) => `${kind} ${name}`);
}
