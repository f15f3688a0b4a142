import type { Operations } from '../operation.ts';
import { administrationOperations } from './administration.ts';
import { connectionOperations } from './connections.ts';
import { environmentOperations } from './environments.ts';
import { execOperations } from './execs.ts';
import { guestFileOperations } from './guest-files.ts';
import { hostOperations } from './hosts.ts';
import { operationalOperations } from './operational.ts';
import { runOperations } from './runs.ts';
import { snapshotOperations } from './snapshots.ts';

export const describedOperations: Operations = {
  ...operationalOperations,
  ...administrationOperations,
  ...environmentOperations,
  ...execOperations,
  ...connectionOperations,
  ...guestFileOperations,
  ...snapshotOperations,
  ...runOperations,
  ...hostOperations,
};
