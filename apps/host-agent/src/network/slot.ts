/**
 * A slot: a network namespace that holds a loopback and one tap, for one VM. Nothing leads out of it. What a packet of the guest may be is in network/slot.nft;
 * connections end at listeners in the namespace that belong to the gateway (gateway.ts). Names begin with a prefix of the host agent's data directory, by which what
 * a crash left is found.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GUEST_ADDRESS } from '@fuse/host-protocol';
import { z } from 'zod';
import { ProgramFailed, runProgram } from '../vmm/children.ts';
import type { NetworkCard } from '../vmm/driver.ts';

export const PROGRAM_PATH = '/usr/sbin:/sbin:/usr/bin:/bin';
const NAMESPACES = '/run/netns';
const TAP_NAME = 'tap0';
const fileOf = (name: string) => fileURLToPath(new URL(`../../network/${name}`, import.meta.url));
/** For `sysctl -p`, `ip -batch` and `nft -D guest_mac=<address> -f`, in this order. */
export const slotFiles = { settings: fileOf('slot.sysctl'), links: fileOf('slot.ip'), rules: fileOf('slot.nft') };

/** As a VM's record has it. */
export const Slot = z.object({ name: z.string(), mac: z.string() });
export type Slot = z.infer<typeof Slot>;

export const namespacePathOf = (name: string): string => join(NAMESPACES, name);

export const cardOf = ({ name, mac }: Slot): NetworkCard => ({
  namespacePath: namespacePathOf(name),
  tapName: TAP_NAME,
  mac,
});

/** Of a data directory's path, without symbolic links: 8 hex digits. */
export const pathDigest = (path: string): string => createHash('sha256').update(path).digest('hex').slice(0, 8);

/** `fuse-<8 hex digits>-` */
export const prefixOf = (path: string): string => `fuse-${pathDigest(path)}-`;

export const slotPrefix = async (dataDirectory: string): Promise<string> => prefixOf(await realpath(dataDirectory));

/** Of every slot of this prefix that is there. */
export async function slotNames(prefix: string): Promise<string[]> {
  return (await namespaces()).filter((name) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)));
}

async function namespaces(): Promise<string[]> {
  try {
    return await readdir(NAMESPACES);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Everything but the listeners. Its guest's hardware address is its own: a VM gets both. On failure nothing is left. */
export async function makeSlot(name: string, signal?: AbortSignal): Promise<Slot> {
  const mac = randomMac();
  const inside = (...argv: string[]) => run(['netns', 'exec', name, ...argv], signal);
  await run(['netns', 'add', name], signal);
  try {
    await inside('sysctl', '-q', '-p', slotFiles.settings);
    await run(['-n', name, '-batch', slotFiles.links], signal);
    // The guest is never asked for its hardware address, so it cannot answer with another.
    await run(
      ['-n', name, 'neighbour', 'replace', GUEST_ADDRESS, 'lladdr', mac, 'dev', TAP_NAME, 'nud', 'permanent'],
      signal,
    );
    await inside('nft', '-D', `guest_mac=${mac}`, '-f', slotFiles.rules);
    return { name, mac };
  } catch (error) {
    await removeSlot(name);
    throw error;
  }
}

/** The tap, the rules and the routes go with it. Also when it is not there. */
export async function removeSlot(name: string): Promise<void> {
  try {
    await run(['netns', 'delete', name]);
  } catch (error) {
    if ((await namespaces()).includes(name)) throw error;
  }
}

const NftCounters = z.object({
  nftables: z.array(z.object({ counter: z.object({ name: z.string(), packets: z.number() }).optional() })),
});

/** Packets that were dropped or refused, by reason; those of which there were none are left out. */
export async function droppedPackets(name: string): Promise<Record<string, number>> {
  const text = await run(['netns', 'exec', name, 'nft', '-j', 'list', 'counters']);
  const { nftables } = NftCounters.parse(JSON.parse(text));
  const counters = nftables.flatMap(({ counter }) => (counter === undefined || counter.packets === 0 ? [] : [counter]));
  return Object.fromEntries(counters.map(({ name: reason, packets }) => [reason, packets]));
}

/** Locally administered, of one host. */
function randomMac(): string {
  const bytes = [...randomBytes(4)].map((byte) => byte.toString(16).padStart(2, '0'));
  return ['02', 'fc', ...bytes].join(':');
}

async function run(args: readonly string[], signal?: AbortSignal): Promise<string> {
  try {
    return await runProgram('ip', args, { path: PROGRAM_PATH, signal });
  } catch (error) {
    if (!(error instanceof ProgramFailed)) throw error;
    throw new Error(`ip ${args.join(' ')}: ${error.stderr.trim() || error.message}`, { cause: error });
  }
}
