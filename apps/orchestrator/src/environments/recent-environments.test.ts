import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inMs } from '../db/db.ts';
import type { EnvironmentRow } from '../db/schema.ts';
import { type Engine, engines } from '../db/test-database.ts';
import { EventHub } from '../events/events.ts';
import { openScene, type Scene } from '../reconciling/test-replicas.ts';
import { touch, transition } from './environment-store.ts';
import { RecentEnvironments } from './recent-environments.ts';

describe.each(engines)('environments as they were looked up last, on %s', (engine: Engine) => {
  let scene: Scene;
  let hub: EventHub;
  let recent: RecentEnvironments;
  let row: EnvironmentRow;

  beforeEach(async () => {
    scene = await openScene(engine);
    hub = await EventHub.open(scene.db);
    recent = new RecentEnvironments(scene.db, hub);
    row = await become(await scene.admit('recent'), 'running');
  }, 60_000);
  afterEach(async () => {
    recent[Symbol.dispose]();
    await hub[Symbol.asyncDispose]();
    await scene[Symbol.asyncDispose]();
  });

  const become = async (from: EnvironmentRow, to: EnvironmentRow['state']): Promise<EnvironmentRow> => {
    const changed = await scene.db.transaction((tx) => transition(tx, from, to));
    if (changed === undefined) throw new Error('it was changed by somebody else');
    return changed;
  };
  const find = () => recent.find(row.tenant_id, row.id);
  /** Written without an event: who sees it has read the row. */
  const mark = (error: string) =>
    scene.db.query.updateTable('environments').set({ error }).where('uid', '=', row.uid).execute();

  it('are read once while nothing is said of them', async () => {
    await mark('first');
    expect((await find())?.error).toBe('first');
    await mark('second');
    expect((await find())?.error).toBe('first');
    await expect.poll(async () => (await find())?.error).toBe('second'); // not for long
  });

  it('are read again once they changed', async () => {
    expect((await find())?.state).toBe('running');
    row = await become(row, 'pausing');
    // On the embedded engine at once; from PostgreSQL the news come a moment after the commit.
    if (engine === 'pglite') expect((await find())?.state).toBe('pausing');
    else await expect.poll(async () => (await find())?.state, { timeout: 900, interval: 5 }).toBe('pausing');
  });

  it('are not kept while they do not run', async () => {
    row = await become(row, 'pausing');
    await find();
    await mark('seen at once');
    expect((await find())?.error).toBe('seen at once');
  });

  it('are not kept once their idle clock wants to be touched', async () => {
    await scene.db.query
      .updateTable('environments')
      .set({ last_activity_at: inMs(-60_000) })
      .where('uid', '=', row.uid)
      .execute();
    const before = (await find())?.last_activity_at.getTime();
    await touch(scene.db.query, row.uid);
    expect((await find())?.last_activity_at.getTime()).toBeGreaterThan(before ?? 0);
  });

  it('are nobody else’s', async () => {
    await find();
    expect(await recent.find('another-tenant', row.id)).toBeUndefined();
    expect(await recent.find(row.tenant_id, 'fuse-unknown')).toBeUndefined();
  });
});
