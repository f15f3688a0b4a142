import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface TemporaryDirectory extends AsyncDisposable {
  path: string;
}

/** A fresh directory; disposing removes it with everything in it. */
export async function temporaryDirectory(prefix = 'fuse-test-'): Promise<TemporaryDirectory> {
  const path = await mkdtemp(join(tmpdir(), prefix));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}
