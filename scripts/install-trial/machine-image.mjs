/** The trial machine's root file system: Debian with systemd and what the install pages ask for, the Node.js of this machine, and its kernel. */
import { readFile, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAsset } from '../setup/asset.mjs';
import { run } from '../setup/command.mjs';
import { MACHINE_PACKAGES } from '../setup/debian-packages.mjs';
import { digest } from '../setup/digest.mjs';
import { mmdebstrap, quoted } from '../setup/mmdebstrap.mjs';

const MAKER_VERSION = 1;
const SUITE = 'bookworm';
/** What is unpacked fits; what is carried out of the chroot is not sparse. */
const PACKED_SIZE = '3G';
const DISK_BYTES = 16 * 1024 ** 3;
const PACKAGES = [
  ...['systemd-sysv', 'dbus', 'udev', 'kmod', 'linux-image-cloud-amd64', 'initramfs-tools', 'zstd'],
  ...['postgresql', 'sudo', 'openssl', 'curl', 'git', 'ca-certificates', 'procps', 'libstdc++6'],
  ...MACHINE_PACKAGES,
];

/** @typedef {{disk: string, kernel: string, initrd: string}} MachineImage  paths */

/** @param {import('../setup/tasks.mjs').StepContext} context @returns {Promise<MachineImage & {made: boolean}>} */
export async function ensureMachineImage(context) {
  const here = (/** @type {string} */ name) => readFile(new URL(name, import.meta.url), 'utf8');
  const customize = await here('customize.sh');
  const listener = await here('inside.mjs');
  const inputs = {
    MAKER_VERSION,
    SUITE,
    PACKED_SIZE,
    DISK_BYTES,
    PACKAGES,
    customize: digest(customize),
    listener: digest(listener),
  };
  const { path, made } = await ensureAsset('trial-machine', inputs, async (directory) => {
    const files = ['disk.img', 'vmlinuz', 'initrd.img'];
    await mmdebstrap(
      {
        suite: SUITE,
        options: ['--variant=minbase', `--include=${PACKAGES.join(',')}`, '--dpkgopt=force-unsafe-io'],
        hooks: [
          `sh -c ${quoted(customize)} customize "$1" ${quoted(listener)}`,
          `unshare --mount sh -euc ${quoted(PACK)} pack "$1"`,
          ...files.map((file) => `download /.trial/${file} ${quoted(join(directory, file))}`),
        ],
        directory,
      },
      context,
    );
    const disk = join(directory, 'disk.img');
    const { signal } = context;
    await run(['fallocate', '--dig-holes', disk], { signal });
    await truncate(disk, DISK_BYTES);
    await run(['resize2fs', disk], { signal });
    return {};
  });
  return { disk: join(path, 'disk.img'), kernel: join(path, 'vmlinuz'), initrd: join(path, 'initrd.img'), made };
}

/** A bind mount without what is mounted below shows the bare tree of the chroot `$1`; a tmpfs keeps the image out of itself. */
const PACK = `
mkdir -p "$1/.trial"
cp "$1"/boot/vmlinuz-* "$1/.trial/vmlinuz"
cp "$1"/boot/initrd.img-* "$1/.trial/initrd.img"
mount --bind "$1" "$1/mnt"
mount -t tmpfs tmpfs "$1/mnt/.trial"
mke2fs -q -t ext4 -d "$1/mnt" "$1/.trial/disk.img" ${PACKED_SIZE}
`;
