/** Files into a guest: from the object store, or from the request itself. */
import { AppError, GuestPath, invalidField } from '@fuse/contract';
import type { GuestFiles, GuestFileWritten } from '@fuse/host-protocol';
import type { ObjectStore } from '@fuse/object-store';
import type { Guest } from '../guest/guest.ts';
import { inParallel } from './in-parallel.ts';

const PARALLEL = 4;

type GuestFile = GuestFiles['files'][number];
export type PutFile = { path: string } & GuestFileWritten;

/** All or an error: those written before it stay. */
export async function putFiles(
  guest: Guest,
  store: ObjectStore,
  files: readonly GuestFile[],
  signal: AbortSignal,
): Promise<PutFile[]> {
  files.forEach(check);
  return inParallel(files, PARALLEL, signal, async (file, stop) => {
    const written = await putFile(guest, store, file, stop);
    return { path: file.path, size_bytes: written.size_bytes, sha256: written.sha256 };
  });
}

async function putFile(
  guest: Guest,
  store: ObjectStore,
  file: GuestFile,
  signal: AbortSignal,
): Promise<GuestFileWritten> {
  const { path, mode, object_key, content_base64, sha256 } = file;
  const about = { path, ...(mode === undefined ? {} : { mode }) };
  if (object_key === undefined) {
    const sum = sha256 === undefined ? {} : { sha256 };
    return guest.writeFile({ ...about, ...sum }, Buffer.from(content_base64 ?? '', 'base64'), signal);
  }
  const { info, body } = await store.get(object_key, { signal });
  try {
    if (sha256 !== undefined && sha256 !== info.sha256)
      throw new AppError('integrity_error', `the stored bytes for ${path} are not those that were uploaded`);
    return await guest.writeFile({ ...about, sha256: info.sha256 }, body, signal);
  } finally {
    body.destroy();
  }
}

function check(file: GuestFile, index: number): void {
  const field = `files.${index}`;
  const path = GuestPath.safeParse(file.path);
  if (!path.success) throw invalidField(`${field}.path`, path.error.issues[0]?.message ?? 'is not valid');
  if ((file.object_key === undefined) === (file.content_base64 === undefined))
    throw invalidField(field, 'exactly one of object_key and content_base64 is required');
}
