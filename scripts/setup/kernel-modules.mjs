/** Which kernel modules to load, and in which order: read from the modules themselves (their `.modinfo`), as depmod does. */
import { readdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';

/**
 * Paths of `wanted` and all that they need, each after what it needs.
 * @param {string} modulesPath  `/lib/modules/<version>` of an unpacked kernel package
 * @param {string[]} wanted
 * @returns {Promise<string[]>}
 */
export async function modulesInLoadOrder(modulesPath, wanted) {
  const files = await readdir(join(modulesPath, 'kernel'), { recursive: true });
  const paths = new Map(
    files.filter((file) => file.endsWith('.ko')).map((file) => [moduleName(file), join(modulesPath, 'kernel', file)]),
  );
  const builtIn = new Set(
    (await readFile(join(modulesPath, 'modules.builtin'), 'utf8')).split('\n').filter(Boolean).map(moduleName),
  );
  /** @type {Set<string>} */
  const ordered = new Set();
  /** @param {string} name */
  const add = async (name) => {
    if (builtIn.has(name)) return;
    const path = paths.get(name);
    if (path === undefined) throw new Error(`the kernel has no module ${name}`);
    if (ordered.has(path)) return;
    for (const needed of neededModules(await readFile(path))) await add(needed);
    ordered.add(path);
  };
  for (const name of wanted) await add(name);
  return [...ordered];
}

/** @param {string} file */
export const moduleName = (file) => basename(file).replace(/\.ko$/, '').replaceAll('-', '_');

/** @param {Buffer} module  an ELF object; `.modinfo` is a row of `key=value` strings, each ended by NUL @returns {string[]} */
export function neededModules(module) {
  const info = elfSection(module, '.modinfo').toString('latin1').split('\0');
  const depends = info.find((entry) => entry.startsWith('depends='));
  return (depends ?? 'depends=').slice('depends='.length).split(',').filter(Boolean).map(moduleName);
}

/** @param {Buffer} elf  little-endian ELF64 @param {string} wanted */
function elfSection(elf, wanted) {
  const table = Number(elf.readBigUInt64LE(0x28));
  const entrySize = elf.readUInt16LE(0x3a);
  const count = elf.readUInt16LE(0x3c);
  const section = (/** @type {number} */ index) => {
    const at = table + index * entrySize;
    const offset = Number(elf.readBigUInt64LE(at + 0x18));
    const size = Number(elf.readBigUInt64LE(at + 0x20));
    return { name: elf.readUInt32LE(at), data: elf.subarray(offset, offset + size) };
  };
  const names = section(elf.readUInt16LE(0x3e)).data;
  for (let index = 0; index < count; index++) {
    const { name, data } = section(index);
    if (names.toString('latin1', name, names.indexOf(0, name)) === wanted) return data;
  }
  throw new Error(`ELF file has no section ${wanted}`);
}
