/** Where a run's frame stream is read: from the object store once it is saved, before that from the host. */
import type { ObjectStore } from '@fuse/object-store';
import type { Db } from '../db/db.ts';
import type { RunRow } from '../db/schema.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { execIdOf } from './run.ts';

export interface LogContext {
  db: Db;
  environments: EnvironmentService;
  objectStore: ObjectStore;
}

/** Bytes from `offset` to the end, or with `follow` to the command's end. A host that is away, or a log that just went: an error. */
export async function openRunLog(
  context: LogContext,
  run: RunRow,
  { offset, follow, signal }: { offset: number; follow: boolean; signal: AbortSignal },
): Promise<AsyncIterable<Uint8Array>> {
  if (run.frames_object_key !== null) {
    const { info, body } = await context.objectStore.get(
      run.frames_object_key,
      offset === 0 ? { signal } : { range: { start: offset }, signal },
    );
    if (offset < info.sizeBytes) return body;
    body.destroy();
    return nothing();
  }
  const environment =
    run.environment_uid === null ? undefined : await context.environments.get(context.db.query, run.environment_uid);
  if (environment === undefined) return nothing();
  const host = await context.environments.hostOf(environment);
  return host.execLog(environment.vm_id, execIdOf(run.id), { offset, follow, signal });
}

async function* nothing(): AsyncGenerator<Uint8Array> {}
