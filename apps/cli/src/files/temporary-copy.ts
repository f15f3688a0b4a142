/** A guest's file on this machine for a moment, readable by its user alone. The name keeps what an editor goes by, and nothing else of the guest's choice. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

export interface TemporaryCopy {
  path: string;
  remove(): Promise<void>;
}

export async function temporaryCopy(
  guestPath: string,
  bytes: Uint8Array | AsyncIterable<Uint8Array>,
): Promise<TemporaryCopy> {
  const directory = await mkdtemp(join(tmpdir(), 'fuse-'));
  const path = join(directory, plainName(guestPath));
  const remove = () => rm(directory, { recursive: true, force: true });
  try {
    await writeFile(path, bytes, { mode: 0o600 });
  } catch (error) {
    await remove();
    throw error;
  }
  return { path, remove };
}

function plainName(guestPath: string): string {
  const name = basename(guestPath)
    .replace(/[^\w.+-]/g, '_')
    .slice(-100);
  return name === '' || /^\.*$/.test(name) ? 'file' : name.replace(/^-/, '_');
}
