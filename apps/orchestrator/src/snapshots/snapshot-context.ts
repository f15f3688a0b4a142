/** What every operation on snapshots stands on. */
import type { ObjectStore } from '@fuse/object-store';
import type { EnvironmentContext } from '../environments/environment-context.ts';

export interface SnapshotContext extends EnvironmentContext {
  /** Where exported ones are. */
  objectStore: ObjectStore;
  /** Aborted when this process ends: what is under way is left as it is, for another to go on with. */
  stopping: AbortSignal;
}
