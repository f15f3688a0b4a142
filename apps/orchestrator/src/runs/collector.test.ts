import { readdir } from 'node:fs/promises';
import { openObjectStore } from '@fuse/object-store';
import { newId } from '@fuse/runtime';
import { afterEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../db/open.ts';
import { quiet } from '../db/test-database.ts';
import { startTestOrchestrator, type TestOrchestrator } from '../test-orchestrator.ts';
import { defaultRunConfig } from './run-config.ts';
import { create, runToEnd, until, untilEmpty, untilEnded } from './run-testing.ts';

describe('the collector', () => {
  let system: TestOrchestrator;
  const start = async (changes: Partial<typeof defaultRunConfig>) => {
    system = await startTestOrchestrator('postgres', {
      config: { runs: { ...defaultRunConfig, collectEveryMs: 50, ...changes } },
    });
  };
  afterEach(async () => {
    await untilEmpty(system);
    await system[Symbol.asyncDispose]();
  });
  const objects = async (): Promise<string[]> => {
    const { objectStore } = system.config;
    if (objectStore.kind !== 'file') throw new Error('these tests look into a directory');
    const entries = await readdir(`${objectStore.directory}/objects`, { recursive: true, withFileTypes: true }).catch(
      () => [],
    );
    return entries.filter((entry) => entry.isFile()).map((entry) => entry.name);
  };

  it('forgets ended runs with their outputs, events and inputs, and keeps those that go on', async () => {
    await start({ retentionMs: 400 });
    const going = await create(system.call, { shell: 'sleep 2; echo x', files: [{ path: 'a', content: 'b' }] });
    const run = await runToEnd(system.call, {
      shell: 'echo x > r.txt',
      outputs: ['r.txt'],
      files: [{ path: 'a', content: 'b' }],
    });
    expect((await fetch(run.outputs[0]?.url ?? '')).status).toBe(200);
    await until(
      () => system.call('GET', `/v1/runs/${run.id}`),
      ({ status }) => status === 404,
    );
    expect((await fetch(run.outputs[0]?.url ?? '')).status).toBe(404);
    expect((await system.call('GET', `/v1/runs/${run.id}/events`)).status).toBe(404);
    await using db = await openDatabase(system.location, quiet);
    for (const table of ['runs', 'run_outputs'] as const) {
      const column = table === 'runs' ? 'id' : 'run_id';
      expect(
        await db.query
          .selectFrom(table)
          .selectAll()
          .where(column as never, '=', run.id as never)
          .execute(),
      ).toEqual([]);
    }
    expect((await untilEnded(system.call, going.id)).state).toBe('succeeded');
    await until(objects, (names) => names.length === 0);
  });

  it('forgets uploads and keys, but not an upload that a run waits for', async () => {
    await start({ fileLifetimeMs: 600 });
    const upload = async () => (await system.call('POST', '/v1/files', 'data')).body;
    const [lonely, used] = [await upload(), await upload()];
    await runToEnd(system.call, { shell: 'cat a', files: [{ path: 'a', file_id: used.id }] });
    await until(
      () => system.call('GET', `/v1/files/${lonely.id}`),
      ({ status }) => status === 404,
    );
    expect((await system.call('GET', `/v1/files/${used.id}`)).status).toBe(200);
    await using db = await openDatabase(system.location, quiet);
    await system.call('POST', '/v1/runs', { cmd: ['true'], wait: true }, { headers: { 'idempotency-key': 'old' } });
    await db.query
      .updateTable('idempotency_keys')
      .set({ created_at: new Date(Date.now() - 86_500_000) as never }) // only tests set the clock
      .execute();
    await until(
      () => db.query.selectFrom('idempotency_keys').selectAll().execute(),
      (rows) => rows.length === 0,
    );
  });

  it('sweeps objects whose run or upload was never committed, once they are old', async () => {
    await start({ sweepEveryMs: 100 });
    await using store = await openObjectStore(system.config.objectStore);
    const old = Date.now() - 3 * 86_400_000;
    const orphans = [`runs/${newId('run', old)}/in/0`, `files/${newId('file', old)}`];
    const young = `runs/${newId('run')}/in/0`;
    const foreign = 'runs/readme';
    for (const key of [...orphans, young, foreign]) await store.put(key, Buffer.from('x'));
    const has = (key: string) =>
      store.head(key).then(
        () => true,
        () => false,
      );
    for (const key of orphans)
      await until(
        () => has(key),
        (there) => !there,
      );
    expect(await has(young)).toBe(true);
    expect(await has(foreign)).toBe(true);
  });
});
