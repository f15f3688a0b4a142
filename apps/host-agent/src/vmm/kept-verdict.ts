/** What a probe found out, kept in a file for as long as what it was asked of stays the same. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { z } from 'zod';

const Kept = z.object({ of: z.string(), boots: z.boolean(), reason: z.string() });

export interface KeptVerdict {
  boots: boolean;
  reason: string;
}

export async function keptVerdict(
  { path, of }: { path: string; of: string },
  probe: () => Promise<KeptVerdict>,
): Promise<KeptVerdict> {
  const known = await read(path);
  if (known?.of === of) return known;
  const verdict = await probe();
  await writeFile(`${path}.new`, JSON.stringify({ of, ...verdict }));
  await rename(`${path}.new`, path);
  return verdict;
}

async function read(path: string): Promise<z.infer<typeof Kept> | undefined> {
  try {
    return Kept.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return undefined; // none, or not one that we wrote
  }
}
