/** The highest fence (host-protocol/src/fence.ts) of each cluster that was seen here, restarts included. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, invalidField } from '@fuse/contract';
import { FENCE_HEADER, parseFence, STALE_FENCE } from '@fuse/host-protocol';
import { z } from 'zod';
import { writeAtomically } from '../vms/atomic-file.ts';

const Kept = z.record(z.string(), z.number().int());

export class Fences {
  readonly #path: string;
  readonly #seen: Map<string, number>;

  private constructor(path: string, seen: Map<string, number>) {
    this.#path = path;
    this.#seen = seen;
  }

  static async open(dataDirectory: string): Promise<Fences> {
    const path = join(dataDirectory, 'fences.json');
    const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '{}';
      throw error;
    });
    return new Fences(path, new Map(Object.entries(Kept.parse(JSON.parse(text)))));
  }

  /** Refuses one that is older than what was seen; without the header there is nothing to say. */
  async check(header: string | string[] | undefined): Promise<void> {
    if (header === undefined) return;
    const fence = typeof header === 'string' ? parseFence(header) : undefined;
    if (fence === undefined) throw invalidField(FENCE_HEADER, 'must be a number and a cluster tag');
    const seen = this.#seen.get(fence.tag) ?? 0;
    if (fence.value < seen)
      throw new AppError('conflict', `fence ${fence.value} is over: ${seen} leads the cluster`, {
        details: { reason: STALE_FENCE, seen: String(seen) },
      });
    if (fence.value === seen) return;
    this.#seen.set(fence.tag, fence.value);
    await writeAtomically(this.#path, JSON.stringify(Object.fromEntries(this.#seen)));
  }
}
