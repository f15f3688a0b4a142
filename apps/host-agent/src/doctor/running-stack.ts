/** The local stack that is up, if one is: it may have been started with another environment than doctor's. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { HostCapacityReport } from '@fuse/host-protocol';
import { z } from 'zod';

const ANSWER_MS = 5_000;
const LocalFile = z.object({ host_url: z.string(), host_token: z.string() });

/** What its host agent says of itself; undefined when none answers. */
export async function runningStack(home: string, signal: AbortSignal): Promise<HostCapacityReport | undefined> {
  try {
    const local = LocalFile.parse(JSON.parse(await readFile(join(home, 'local.json'), 'utf8')));
    const response = await fetch(new URL('/v1/capacity', local.host_url), {
      headers: { authorization: `Bearer ${local.host_token}` },
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
    });
    return response.ok ? HostCapacityReport.parse(await response.json()) : undefined;
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}
