/**
 * A template on disk: `memory`, `device`, `disk.img`, and `template.json`, which says what it was made from and the digest of each part.
 * The parts never change once the directory has its final name, so size, time and inode tell cheaply whether they are still the ones
 * whose digests were checked.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { knownDigest, stampOf as stampOfFile } from './known-digest.ts';

export const TEMPLATE_FORMAT = 1;
export const MEMORY_PART = 'memory';
export const DEVICE_PART = 'device';
export const DISK_PART = 'disk.img';
export const DESCRIPTION_FILE = 'template.json';

const PartDescription = z.object({ sizeBytes: z.number().int(), digest: z.string().length(64) });

export const TemplateDescription = z.object({
  format: z.literal(TEMPLATE_FORMAT),
  /** What the key is the hash of. */
  madeFrom: z.object({
    image: z.string(),
    kernel: z.string(),
    initramfs: z.string(),
    driver: z.string(),
    shape: z.object({ cpus: z.number(), ram_mb: z.number(), storage_gb: z.number() }),
    warm: z.array(z.array(z.string())),
    /** With a network card. */
    network_card: z.literal(true).optional(),
  }),
  parts: z.object({ memory: PartDescription, device: PartDescription, disk: PartDescription }),
});
export type TemplateDescription = z.infer<typeof TemplateDescription>;

const partNames = { memory: MEMORY_PART, device: DEVICE_PART, disk: DISK_PART } as const;
const parts = Object.entries(partNames) as [keyof typeof partNames, string][]; // the keys of a constant

export async function describeParts(directory: string, signal?: AbortSignal): Promise<TemplateDescription['parts']> {
  const described = async (name: string) => {
    const path = join(directory, name);
    return { sizeBytes: (await stat(path)).size, digest: (await knownDigest(path, signal)).digest };
  };
  const [memory, device, disk] = await Promise.all([
    described(MEMORY_PART),
    described(DEVICE_PART),
    described(DISK_PART),
  ]);
  return { memory, device, disk };
}

/** What must be unchanged for an earlier check to hold; undefined when a part is missing. */
export async function stampOf(directory: string): Promise<string | undefined> {
  try {
    const stamps = await Promise.all(parts.map(([, name]) => stampOfFile(join(directory, name))));
    return stamps.map(({ stamp }) => stamp).join(' ');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Undefined when the template is whole, otherwise what is wrong with it. */
export async function findDamage(directory: string, signal?: AbortSignal): Promise<string | undefined> {
  let description: TemplateDescription;
  try {
    description = TemplateDescription.parse(JSON.parse(await readFile(join(directory, DESCRIPTION_FILE), 'utf8')));
  } catch {
    return `${DESCRIPTION_FILE} is not readable`;
  }
  for (const [part, name] of parts) {
    const path = join(directory, name);
    const size = await stat(path).then(
      (each) => each.size,
      () => undefined,
    );
    if (size === undefined) return `${name} is missing`;
    const { sizeBytes, digest } = description.parts[part];
    if (size !== sizeBytes) return `${name} has ${size} bytes and should have ${sizeBytes}`;
    if ((await knownDigest(path, signal)).digest !== digest) return `${name} does not match its digest`;
  }
  return undefined;
}
