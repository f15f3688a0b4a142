/** What a PCI device is called, in the list that Debian's package pci.ids has. Without the list, or a name in it, its numbers are its name. */
import { readFile } from 'node:fs/promises';

const PLACES = ['/usr/share/misc/pci.ids', '/usr/share/hwdata/pci.ids'];

let listOnce: Promise<string> | undefined;

async function readList(): Promise<string> {
  for (const path of PLACES) {
    const text = await readFile(path, 'utf8').catch(() => undefined);
    if (text !== undefined) return text;
  }
  return '';
}

/** `vendor` and `device`: four hexadecimal digits each, in lower case. */
export async function pciModel(vendor: string, device: string): Promise<string> {
  listOnce ??= readList();
  return nameIn(await listOnce, vendor, device) ?? `${vendor}:${device}`;
}

/** In the list a vendor's line is followed by those of its devices, which begin with a tab; with two, by those of boards. */
export function nameIn(list: string, vendor: string, device: string): string | undefined {
  const text = `\n${list}`;
  const from = text.indexOf(`\n${vendor}  `);
  if (from < 0) return undefined;
  const rest = text.slice(from + 1);
  const [first = ''] = rest.split('\n', 1);
  const end = rest.search(/\n[^\t#\n]/);
  const devices = end < 0 ? rest : rest.slice(0, end);
  const at = devices.indexOf(`\n\t${device}  `);
  if (at < 0) return undefined;
  const [line = ''] = devices.slice(at + 1).split('\n', 1);
  return `${first.slice(vendor.length).trim()} ${line.trim().slice(device.length).trim()}`.slice(0, 256);
}
