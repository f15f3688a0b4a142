/** Writer of the "newc" cpio archive that Linux unpacks as its initramfs. Same entries, same bytes: no time, no inode of the host. */

const DIRECTORY = 0o040000;
const REGULAR = 0o100000;
const CHARACTER_DEVICE = 0o020000;

/**
 * @param {{path: string, mode?: number, data?: Uint8Array, device?: {major: number, minor: number}}[]} entries  parents first; a file with
 *   data, a character device with its numbers, without either a directory
 * @returns {Buffer}
 */
export function cpioArchive(entries) {
  /** @type {Buffer[]} */
  const parts = [];
  entries.forEach(({ path, mode, data, device }, index) => {
    const fileMode =
      device !== undefined
        ? CHARACTER_DEVICE | (mode ?? 0o600)
        : data !== undefined
          ? REGULAR | (mode ?? 0o644)
          : DIRECTORY | (mode ?? 0o755);
    parts.push(...record({ path, inode: index + 1, fileMode, data: data ?? new Uint8Array(), device }));
  });
  parts.push(...record({ path: 'TRAILER!!!', inode: 0, fileMode: 0, data: new Uint8Array() }));
  return Buffer.concat(parts);
}

/** @param {{path: string, inode: number, fileMode: number, data: Uint8Array, device?: {major: number, minor: number} | undefined}} entry */
function record({ path, inode, fileMode, data, device = { major: 0, minor: 0 } }) {
  const links = 1;
  // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
  const { major, minor } = device;
  const fields = [inode, fileMode, 0, 0, links, 0, data.length, 0, 0, major, minor, Buffer.byteLength(path) + 1, 0];
  const header = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}${path}\0`;
  return [padded(Buffer.from(header)), padded(Buffer.from(data))];
}

/** @param {Buffer} bytes */
const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);
