/** While a command is waited for, followed or fed, its environment is not idle. */
import type { Queryable } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { touch } from '../environments/environment-store.ts';
import { TOUCH_GRAIN_MS } from '../environments/ready.ts';

const TOUCH_MS = 15_000;

/** Until it is disposed of. A short use writes nothing. */
export function inUse(db: Queryable, row: Pick<EnvironmentRow, 'uid' | 'last_activity_at'>): Disposable {
  const stamp = () => void touch(db, row.uid).catch(() => {}); // only the idle clock
  if (Math.abs(Date.now() - row.last_activity_at.getTime()) > TOUCH_GRAIN_MS) stamp();
  const startedAt = performance.now();
  const stamping = setInterval(stamp, TOUCH_MS);
  return {
    [Symbol.dispose]() {
      clearInterval(stamping);
      if (performance.now() - startedAt > TOUCH_GRAIN_MS) stamp();
    },
  };
}
